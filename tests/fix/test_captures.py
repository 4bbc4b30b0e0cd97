"""Models that captures freeze: the edit that makes the capture faithful, for the method that is asked for."""

from __future__ import annotations

import linecache
import textwrap

import pytest

from torchsan.fix.capture_child import CaptureRequest, trial_of
from torchsan.fix.engine import Engine
from torchsan.fix.trial import Trial
from torchsan.rules import all_rules

# Seconds; no machine is so slow that a variant is left out.
BUDGET = 3600.0


class Captured:
    """Captures in this process: a fresh interpreter for each trial would take minutes."""

    def __init__(self, path, method: str) -> None:
        self.path = str(path)
        self.method = method
        self.runs = 0

    def run(self, changed, mode) -> Trial:
        self.runs += 1
        with open(self.path, "rb") as file:
            old = file.read()
        try:
            if self.path in changed:
                with open(self.path, "wb") as file:
                    file.write(changed[self.path].raw)
            linecache.clearcache()
            return trial_of(CaptureRequest(f"{self.path}:make", [self.method], BUDGET))
        except Exception as error:
            return Trial(error=f"{type(error).__name__}: {error}")
        finally:
            with open(self.path, "wb") as file:
                file.write(old)


@pytest.fixture
def mend_capture(tmp_path):
    def search(source: str, method: str = "jit.trace"):
        path = (tmp_path / "model.py").resolve()
        path.write_text(source)
        return Engine(Captured(path, method)).run()

    return search


def model(forward: str, made: str = "") -> str:
    return (
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)\n"
        + textwrap.indent(textwrap.dedent(made).strip("\n") + "\n", "        ")
        + "\n    def forward(self, x):\n"
        + textwrap.indent(textwrap.dedent(forward).strip("\n"), "        ")
        + "\n\n\ndef make():\n    torch.manual_seed(0)\n    return Model().eval(), (torch.randn(3, 4),)\n"
    )


BRANCH = """
if x.sum() > 0:
    y = self.first(x)
else:
    y = self.second(x)
return y
"""
EARLY = """
if x.abs().max() > 5:
    return torch.zeros_like(x)
h = self.first(x)
return h
"""
BREAK = """
h = x
for _ in range(5):
    h = torch.tanh(self.first(h))
    if h.norm() < 1.0:
        break
return h
"""
WHILE = """
h = x
while h.norm() > 1.0:
    h = h * 0.5
return h
"""
CHECK = """
if x.isnan().any():
    raise ValueError("nan")
return self.first(x)
"""
COUNTER = """
self.calls = self.calls + 1
if self.calls > 2:
    return self.first(x)
return self.second(x)
"""
CASES = [
    (model(BRANCH), "jit.trace", "y = torch.where(x.sum() > 0, self.first(x), self.second(x))"),
    (model(EARLY), "export", "return torch.where(is_early, early, h)"),
    (model("scale = 2.0 if x.mean() > 0 else 0.5\nreturn x * scale"), "export", "torch.where(x.mean() > 0, 2.0, 0.5)"),
    (model(BREAK), "jit.trace", "h = torch.where(running, torch.tanh(self.first(h)), h)"),
    (model(WHILE), "jit.trace", "@torch.jit.script"),
    (model(CHECK), "export", "if not torch.compiler.is_exporting() and (x.isnan().any()):"),
    (model("m = x.max().item()\nreturn x / (m + 1.0)"), "jit.trace", "m = x.max()\n"),
    (model("return self.first(x).sum(0) / len(x)"), "export", "self.first(x).sum(0) / x.shape[0]"),
    (model(COUNTER, "self.calls = 0"), "export", 'self.register_buffer("calls", torch.tensor(0), persistent=False)'),
]


@pytest.mark.parametrize(("source", "method", "expected"), CASES, ids=[case[2][:30] for case in CASES])
def test_captures_are_mended(source, method, expected, mend_capture):
    outcome = mend_capture(source, method)
    assert outcome.clean, [(m.finding.code, m.dropped) for m in outcome.mends]
    [edited] = outcome.changed.values()
    assert expected in edited.text


# What their pages advise cannot be proved by an edit of the model: an effect that must go, a copy to be captured, the mode
# in which it is, or a cause that nobody knows.
UNMENDED = {"TS308", "TS311", "TS313", "TS314"}
BAD = [rule for rule in all_rules().values() if "def make" in rule.bad and rule.code not in UNMENDED]


@pytest.mark.parametrize("rule", BAD, ids=lambda rule: rule.code)
def test_bad_example_is_mended(rule, mend_capture):
    outcome = mend_capture(rule.bad)
    assert outcome.mends[0].finding.code == rule.code
    assert outcome.clean, [(m.finding.code, m.dropped) for m in outcome.mends]


def test_an_edit_that_changes_the_model_is_dropped(mend_capture):
    rows = "rows = []\nfor i in range(x.shape[0]):\n    rows.append(x[i] / x[i].norm())\nreturn torch.stack(rows)"
    outcome = mend_capture(model(rows), "export")
    assert ("work on the whole dimension at once", "the model itself gives another result") in outcome.mends[0].dropped
    assert not outcome.changed
