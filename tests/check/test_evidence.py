"""What is certain, and what only possible: each piece of evidence by itself, and what the tree shows of it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from torchsan.check.runner import check_files
from torchsan.check.telling.evidence import CARRIED_BY, Claim, Evidence, certainty

SUMMED = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, {option}size: int = 8):
        super().__init__()
        self.proj = nn.Linear(size, size)
        self.act = nn.ReLU()
        {kept}

    def {name}(self, x):
        h = self.act(self.proj(x))
        if {asked}:
            h += x
        return h
"""
OTHERWISE = {"option": "", "kept": "self.size = size", "name": "forward", "asked": "h.sum() > 0"}
TRAINING = "def fit(net, x):\n    loss = net(x).sum()\n    loss.backward()\n"


@pytest.fixture
def told(tmp_path: Path):
    """Certainty by code of what is found in the first of some files."""

    def check(**files: str) -> dict[str, str]:
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
        first = tmp_path / f"{next(iter(files))}.py"
        (result,) = check_files([str(first)], jobs=1, cache_folder=None, possible=True)
        return {f.code: f.certainty for f in result.findings}

    return check


@pytest.mark.parametrize("claim", Claim)
def test_every_piece_is_needed(claim):
    for needed in CARRIED_BY[claim]:
        full = {piece: (lambda: True) for piece in needed}
        assert certainty(claim, full) == "certain"
        for missing in needed:
            assert certainty(claim, full | {missing: lambda: False}) == "possible"
            assert certainty(claim, {k: v for k, v in full.items() if k != missing}) == "possible"


def test_what_is_dear_is_looked_for_only_where_it_decides():
    asked: list[Evidence] = []
    shown = {
        piece: (lambda piece=piece: asked.append(piece) or piece != Evidence.TAKEN)
        for piece in (Evidence.FOLLOWED, Evidence.TAKEN, Evidence.TRAINED)
    }
    assert certainty(Claim.GRADIENT, shown) == "possible"
    assert asked == [Evidence.FOLLOWED, Evidence.TAKEN]


def net(**changes: str) -> str:
    return SUMMED.format(**(OTHERWISE | changes))


OPTION = {"option": "skip: bool = False, ", "kept": "self.skip = skip", "asked": "self.skip"}


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("", "possible"),
        ("from .net import Net\n\n\ndef build():\n    return Net(skip=True)\n", "certain"),
        ("from .net import Net\n\n\ndef build():\n    return Net(skip=False)\n", "possible"),
        ("from .net import Net\n\n\ndef build(skip=False):\n    return Net(skip=skip)\n", "possible"),
        (
            "from .net import Net\n\n\ndef build(skip=False):\n    return Net(skip=skip)\n\n\nbuild(skip=True)\n",
            "certain",
        ),
        ("from .net import Net\n\n\ndef build(args):\n    return Net(skip=args.skip)\n", "certain"),
        ("from .net import Net\n\n\ndef build():\n    return Net(True)\n", "certain"),
    ],
)
def test_an_option_that_nobody_sets(told, use, expected):
    assert told(net=net(**OPTION), build=use, fit=TRAINING)["TS101"] == expected


def test_an_option_that_is_documented_is_there_to_be_set(told):
    text = net(**OPTION).replace(
        "        super()", '        """Args:\n            skip: adds the input.\n        """\n        super()'
    )
    assert told(net=text, fit=TRAINING)["TS101"] == "certain"


def test_data_may_be_anything(told):
    assert told(net=net(), fit=TRAINING)["TS101"] == "certain"


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("", "possible"),
        ("def fit(net, x):\n    net.mixed(x).sum().backward()\n", "certain"),
        ("def show(net, x):\n    with torch.no_grad():\n        return net.mixed(x)\n", "possible"),
        ("@torch.no_grad()\ndef sample(net, x):\n    return net.mixed(x)\n", "possible"),
        ("def half(net, x):\n    return net.mixed(x) / 2\n\n\ndef train(net, x):\n    half(net, x)\n", "certain"),
        ("torch.set_grad_enabled(False)\n\n\ndef train(net, x):\n    return net.mixed(x)\n", "possible"),
    ],
)
def test_a_method_that_training_leads_to(told, use, expected):
    assert told(net=net(name="mixed"), use=f"import torch\n\n\n{use}", fit=TRAINING)["TS101"] == expected


def test_a_tree_that_only_evaluates(told):
    use = "import torch\n\n\ndef show(net, x):\n    net.eval()\n    with torch.no_grad():\n        return net(x)\n"
    assert told(net=net(), use=use)["TS101"] == "possible"


def test_a_path_that_writes_there_and_shows_nothing(told):
    text = net().replace(
        "h = self.act(self.proj(x))", "h = x + 1\n        if x.dim() == 2:\n            h = self.act(self.proj(x))"
    )
    assert told(net=text, fit=TRAINING)["TS101"] == "possible"


@pytest.mark.parametrize(("given", "expected"), [("", "possible"), ("retain_graph=True", "certain")])
def test_a_custom_backward_that_spoils_what_it_keeps(told, given, expected):
    text = """
    import torch


    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            x.mul_(grad)
            return x
    """
    assert told(own=text, fit=TRAINING.replace("backward()", f"backward({given})"))["TS101"] == expected


def test_a_key_that_is_deleted_is_gone(check):
    text = """
    import torch
    from torch import nn
    from collections import OrderedDict


    class Block(nn.Module):
        def __init__(self, size):
            super().__init__()
            rep = OrderedDict()
            rep["act"] = nn.ReLU(inplace=True)
            rep["proj"] = nn.Linear(size, size)
            del rep["act"]
            self.rep = nn.Sequential(rep)
            self.skip = nn.Linear(size, size)

        def forward(self, x):
            skip = self.skip(x)
            return self.rep(x) + skip
    """
    assert not check(text)
    assert check(text.replace('del rep["act"]', "pass"))


@pytest.mark.parametrize(
    ("write", "expected"), [("x -= x.mean()", "certain"), ("x *= mask", "possible"), ("x.squeeze_()", "possible")]
)
def test_a_write_that_takes_nothing_away(told, write, expected):
    text = f"import torch\n\n\ndef total(x: torch.Tensor, mask: torch.Tensor):\n    {write}\n    return x.sum()\n"
    use = "from .rows import total\n\n\ndef both(x, mask):\n    t = total(x, mask)\n    return t, x + 1\n"
    assert told(rows=text, use=use)["TS204"] == expected


@pytest.mark.parametrize(("then", "expected"), [("x * 2", "certain"), ("x.shape", "possible")])
def test_the_function_itself_reads_its_argument_again(told, then, expected):
    text = f"""
    import torch
    from torch import nn


    class Attend(nn.Module):
        def __init__(self, size: int, pooled: bool):
            super().__init__()
            self.proj, self.pooled = nn.Linear(size, size), pooled

        def forward(self, x: torch.Tensor):
            h = self.proj(x) if self.pooled else x.view(-1)
            h -= h.mean()
            return h, {then}
    """
    assert told(attend=text)["TS204"] == expected


@pytest.mark.parametrize(("index", "expected"), [("0", "certain"), ("x > 9", "possible")])
def test_elements_that_share_memory_and_get_the_same(check, index, expected):
    text = f"import torch\nx = torch.ones(1, 3).expand(4, 3)\nx[{index}] = 9\nprint(x)\n"
    assert [f.certainty for f in check(text, possible=True) if f.code == "TS107"] == [expected]
