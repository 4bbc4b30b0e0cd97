"""What is only presumed is at most possible: branches for capture or use, sizes, callers, values of unknown kind."""

from __future__ import annotations

import textwrap

import pytest
from tests.check.test_tree import _forget_trees, found, tree

__all__ = ["_forget_trees"]
HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n\n\n"
ROWS = """
class Rows(nn.Module):
    def __init__(self, export=False):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.export = export

    def forward(self, x):
        h = self.conv(x)
        if {test}:
            y = self.conv(h[:, :, :1])
            h[:, :, 1:2] += y
        return h
"""
MODES = """
import torch


def capturing():
    if torch.__version__ >= "1.7":
        return torch.jit.is_tracing()
    elif torch.__version__ >= "1.6":
        return torch._C._is_tracing()
    else:
        return False


def busy():
    return torch.jit.is_scripting() or torch.compiler.is_compiling()


def eager():
    return not torch.onnx.is_in_onnx_export()
"""


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("capturing()", False),
        ("not capturing()", True),
        ("busy()", False),
        ("eager()", True),
        ("self.export", False),
        ("not self.export", True),
        ("not self.training", False),
    ],
)
def test_what_runs_only_while_capturing_is_not_differentiated(tmp_path, test, told):
    rows = HEAD + "from .modes import busy, capturing, eager\n" + ROWS.format(test=test)
    tree(tmp_path, modes=MODES, rows=rows)
    assert bool(found(tmp_path, "rows")) is told


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("x.expand(4, -1, -1)", True),
        ("x.unsqueeze(0).expand(n, -1, -1)", True),
        ("x.view(-1, 1).expand(-1, n)", True),
        ("x[None].expand(n, -1, -1)", True),
        ("torch.zeros(1, 3).expand(n, 3)", True),
        ("x.expand(n, -1, -1)", False),
        ("x.expand(1, -1, -1)", False),
        ("x.expand_as(other)", False),
    ],
)
def test_only_an_expand_that_grows_repeats_elements(check, made, told):
    text = HEAD + f"def f(x: torch.Tensor, other: torch.Tensor, n: int):\n    y = {made}\n    y *= 2\n    return y\n"
    assert ("TS107" in {f.code for f in check(text)}) is told


SCALED = """
def scaled(x: torch.Tensor, mode: str):
    if mode == "fast":
        raise ValueError(mode)
    x *= 0.5
    return x.sum()
"""


@pytest.mark.parametrize(("branch", "told"), [("if dynamic:", False), ("for _ in range(2):", True)])
def test_a_read_on_a_branch_may_never_meet_the_write(tmp_path, branch, told):
    caller = f"""
    from .scale import scaled


    def run(x, dynamic, mode):
        {branch}
            first = scaled(x, mode)
            second = x + first
        return None
    """
    tree(tmp_path, scale=HEAD + SCALED, caller=textwrap.dedent(caller))
    assert (("TS204", 9) in [(code, 9) for code, _ in found(tmp_path, "scale")]) is told


FILL = """
def fill(m):
    if isinstance(m, nn.Linear):
        m.weight.normal_()
    return m
"""


@pytest.mark.parametrize(("head", "told"), [("with torch.no_grad():", False), ("if True:", True)])
def test_who_calls_without_gradients_may_write_to_parameters(tmp_path, head, told):
    caller = f"import torch\nfrom .fill import fill\n\n\ndef build(net):\n    {head}\n        net.apply(fill)\n    return net\n"
    tree(tmp_path, fill=HEAD + FILL, caller=caller)
    assert ("TS102" in {code for code, _ in found(tmp_path, "fill")}) is told


QUIET = {
    "no_grad inside of inference mode": """
        @torch.inference_mode()
        def validate(model, batches):
            losses = torch.zeros(len(batches))
            with torch.no_grad():
                for index, batch in enumerate(batches):
                    losses[index] = model(batch).sum()
            return losses
        validate(nn.Linear(2, 2), [torch.ones(2)])
    """,
    "flags that may never go together": """
        class Block(nn.Module):
            def __init__(self, channels, stride, last_act=False, act=nn.ReLU):
                super().__init__()
                self.skips = stride == 1 and not last_act
                self.conv = nn.Conv2d(channels, channels, 1)
                self.act = act(inplace=True) if last_act else nn.Identity()
            def forward(self, x):
                h = self.act(self.conv(x))
                if self.skips:
                    h += x
                return h
    """,
    "branches of __init__ that may never go together": """
        class Block(nn.Module):
            def __init__(self, channels, stride, last_act=False):
                super().__init__()
                self.skips = stride == 1 and not last_act
                self.conv = nn.Conv2d(channels, channels, 1)
                if last_act:
                    self.act = nn.ReLU()
                else:
                    self.act = None
            def forward(self, x):
                h = self.conv(x)
                if self.act is not None:
                    h = self.act(h)
                if self.skips:
                    h += x
                return h
    """,
    "a pooling with its indices": """
        class Pool(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(3, 3, 1)
            def forward(self, x):
                y, where = F.max_pool2d(self.conv(x), 2, return_indices=True)
                y += 1
                return y, where
    """,
    "a decorator that may switch gradients off": """
        def evaluation_no_grad(f):
            return f
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
            @evaluation_no_grad
            def forward(self, x):
                h = self.fc(x).exp()
                h += 1
                return h
    """,
    "a number that is counted down": """
        def rounds(n, x: torch.Tensor):
            n -= 1
            return x * n
    """,
    "an argument that gets another value first": """
        def mean(values):
            values = torch.stack(values)
            values /= values.size(0)
            return values.sum()
    """,
    "several things at once": """
        def scaled(x):
            if isinstance(x, float):
                x *= 2
                return x
            return x.detach().cpu()
    """,
}


@pytest.mark.parametrize("name", QUIET)
def test_silent(name, check):
    assert check(HEAD + textwrap.dedent(QUIET[name])) == []
