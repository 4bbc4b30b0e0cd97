"""What a capture freezes, told from source: in modules that the tree captures, and in all of them when asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchsan.check.analyse import analyse
from torchsan.check.choosing.files import Source
from torchsan.check.runner import check_files
from torchsan.rules import all_rules

TOLD = ("TS301", "TS302", "TS303", "TS305", "TS306", "TS307")
HEAD = "import random\n\nimport numpy as np\nimport torch\nfrom torch import nn\n\n\n"
NET = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n{start}\n    def forward(self, x, n):\n{body}\n"


def codes(text: str, **more: bool) -> list[tuple[str, int]]:
    found = analyse(Source("net.py", text), **more).findings
    return [(f.code, f.primary.line) for f in found if f.certainty != "possible"]


@pytest.mark.parametrize("code", TOLD)
def test_the_examples_of_the_rules(code: str) -> None:
    rule = all_rules()[code]
    assert codes(rule.bad, modules=True) == [(code, rule.bad_line())]
    assert codes(rule.good, modules=True) == []
    assert codes(rule.bad) == []


def net(body: str, start: str = "        self.fc = nn.Linear(4, 4)") -> str:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return HEAD + NET.format(start=start, body=lines)


TRACED = "\n\nnet = Net().eval()\ntorch.jit.trace(net, (torch.ones(4), torch.ones(4)))\n"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("if x.sum() > 0:\n    return x\nreturn -x", "TS301"),
        ("h = self.fc(x)\nreturn h if h.mean() > 0 else -h", "TS301"),
        ("while x.norm() > 1:\n    x = x / 2\nreturn x", "TS301"),
        ("top = x.max().item()\nreturn x / top", "TS303"),
        ("for _ in range(int(n.max())):\n    x = x + 1\nreturn x", "TS302"),
        ("scale = random.random()\nreturn x * scale", "TS306"),
        ("return x * np.random.rand()", "TS306"),
    ],
)
def test_what_a_traced_module_freezes(body: str, code: str) -> None:
    assert [c for c, _ in codes(net(body) + TRACED)] == [code]
    # Not captured: nobody is harmed.
    assert codes(net(body)) == []


@pytest.mark.parametrize(
    "body",
    [
        "if x.size(0) > 4:\n    return x\nreturn -x",
        "if x.dim() == 1:\n    x = x[None]\nreturn self.fc(x)",
        "if x is None:\n    return n\nreturn x",
        "if self.training:\n    x = x * random.random()\nreturn x",
        "if not torch.jit.is_tracing():\n    print(x.max().item())\nreturn x",
        "print(x.max().item())\nreturn x",
        "if x.max() > 9:\n    raise ValueError('too large')\nreturn x",
        "table = torch.arange(4)\nif table.sum() > 3:\n    x = x + 1\nreturn x",
        "return torch.where(x > 0, x, -x)",
        "b, = x.shape\nreturn x.view(b, 1)",
    ],
)
def test_what_a_capture_keeps_as_it_is(body: str) -> None:
    assert codes(net(body) + TRACED) == []


def test_a_counter_that_is_only_counted() -> None:
    start = "        self.calls = 0"
    assert codes(net("self.calls += 1\nreturn x", start) + TRACED) == []
    assert [c for c, _ in codes(net("self.calls += 1\nreturn x * self.calls", start) + TRACED)] == ["TS305"]


def test_captured_while_training() -> None:
    start = "        self.drop = nn.Dropout(0.5)"
    body = net("return self.drop(x)", start)
    assert codes(body + TRACED) == []
    training = TRACED.replace(".eval()", "")
    assert [c for c, _ in codes(body + training)] == ["TS313"]
    assert codes(body.replace("0.5", "0") + training) == []
    assert codes(body + training.replace("net = Net()\n", "net = Net()\nprepare(net)\n")) == []


def test_a_module_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(net("if x.sum() > 0:\n    return x\nreturn -x"))
    deploy = "import torch\nfrom net import Net\n\n\ndef deploy():\n    net = Net().eval()\n    return torch.jit.trace(net, ())\n"
    (tmp_path / "deploy.py").write_text(deploy)
    results = check_files([str(tmp_path / n) for n in ("net.py", "deploy.py")], jobs=1, cache_folder=None)
    found = [(r.path, f) for r in results for f in r.findings]
    assert [(Path(path).name, f.code, Path(f.primary.path).name) for path, f in found] == [
        ("deploy.py", "TS301", "net.py")
    ]
    assert [Path(s.path).name for s in found[0][1].spans] == ["net.py", "deploy.py"]
    # Whoever owns the line may keep it quiet.
    text = (tmp_path / "net.py").read_text()
    (tmp_path / "net.py").write_text(text.replace("> 0:", "> 0:  # torchsan: ignore[TS301] never differs"))
    quiet = check_files([str(tmp_path / "deploy.py")], jobs=1, cache_folder=None)
    assert quiet[0].findings == []
