"""Gradients that callers may want of what they hand in, methods that only a package calls, and second names."""

import textwrap

import pytest

from torchsan.check.runner import check_files

HEAD = """
import torch
from torch import nn, Tensor
import torch.nn.functional as F
"""
TRAINS = "import torch\n\ndef fit(model, opt):\n    model(torch.ones(2)).backward()\n    opt.step()\n"
SHIFT = '''
def {name}(img: Tensor, factor: float):
    """Shift the hue.

    Args:
        img: The picture.
    """
    img = torch.relu(img * 2)
    h, s, v = {value}
    h += factor
    return torch.stack((h, s, v))
class Jitter(nn.Module):
    def forward(self, img):
        return {name}(img, 0.5)
'''


def told(tmp_path, program, **files):
    """Codes that are told by default of a module of a package that trains something."""
    folder = tmp_path / "made"
    folder.mkdir()
    for name, text in {"__init__": "", "fit": TRAINS, **files}.items():
        (folder / f"{name}.py").write_text(text)
    path = folder / "work.py"
    path.write_text(HEAD + textwrap.dedent(program))
    (result,) = check_files([str(path)], jobs=1, cache_folder=None)
    assert not result.error
    return [finding.code for finding in result.findings if finding.certainty != "possible"]


def test_a_documented_function_breaks_for_who_asks_for_a_gradient(tmp_path):
    assert told(tmp_path, SHIFT.format(name="adjust_hue", value="img.unbind(0)")) == ["TS103"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_adjust_hue", "img.unbind(0)"),
        ("predict_hue", "img.unbind(0)"),
        ("adjust_hue", "img.detach().unbind(0)"),
        ("adjust_hue", "img.long().unbind(0)"),
        ("adjust_hue", "[part.clone() for part in img.unbind(0)]"),
    ],
)
def test_nobody_asks_for_a_gradient_there(tmp_path, name, value):
    assert told(tmp_path, SHIFT.format(name=name, value=value)) == []


def test_a_table_that_is_made_once(tmp_path):
    once = SHIFT.format(name="adjust_hue", value="img.unbind(0)").replace("forward(self", "__init__(self")
    assert told(tmp_path, once) == []


def test_a_function_without_a_word_about_its_arguments(tmp_path):
    bare = SHIFT.format(name="adjust_hue", value="img.unbind(0)").replace("Args:", "Notes.")
    assert told(tmp_path, bare) == []


LOOP = """
    def total(equation, *operands):
        shifts = []
        for dims, operand in zip(equation.split(","), operands):
            shift = operand.detach()
            for i, dim in enumerate(dims):
                if dim not in "ab":
                    shift = shift.max(i, keepdim=True)[0]
            {line}
            shifts.append({read})
        return sum(shifts)
"""


@pytest.mark.parametrize(
    ("line", "read", "expected"),
    [
        ("shift.clamp_(min=torch.finfo(shift.dtype).min)", "operand - shift", ["TS204"]),
        ("shift.clamp_(min=torch.finfo(shift.dtype).min)", "shift", []),
        ("shift = shift.clamp(min=torch.finfo(shift.dtype).min)", "operand - shift", []),
    ],
)
def test_an_item_of_the_arguments_that_is_read_again(tmp_path, line, read, expected):
    assert told(tmp_path, LOOP.format(line=line, read=read)) == expected


CHART = """

    class Get(torch.autograd.Function):
        @staticmethod
        def forward(ctx, chart, kept, at):
            ctx.save_for_backward(kept)
            ctx.at = at
            return chart[at]

        @staticmethod
        def backward(ctx, grad):
            (kept,) = ctx.saved_tensors
            kept[ctx.at] += grad
            return kept, None, None

    class Chart:
        def __init__(self, data):
            self.data, self.grad = data, torch.zeros_like(data)
        def __getitem__(self, at):
            return Get.apply(self.data, {kept}, at)
"""


@pytest.mark.parametrize(("kept", "expected"), [("self.grad", ["TS101"]), ("torch.zeros_like(self.data)", [])])
def test_every_call_saves_what_the_object_keeps(tmp_path, kept, expected):
    assert told(tmp_path, CHART.format(kept=kept)) == expected


FLOW = """
    class Flow(torch.distributions.Transform, nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)
        def {name}(self, x):
            y = torch.tanh(self.layer(x))
            {line}
            return y
"""


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [("_call", "y += x", ["TS101"]), ("_call", "y = y + x", []), ("_predict", "y += x", [])],
)
def test_a_method_that_only_a_package_calls(tmp_path, name, line, expected):
    assert told(tmp_path, FLOW.format(name=name, line=line)) == expected


BLOCK = """
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)
            nn.init.zeros_(self.conv.bias)
        def forward(self, x):
            y = F.relu(self.conv(x))
            y += x
            return y
"""


@pytest.mark.parametrize(("installed", "expected"), [(True, ["TS101"]), (False, [])])
def test_layers_that_a_package_offers_are_trained_by_others(tmp_path, installed, expected):
    if installed:
        (tmp_path / "setup.py").write_text("")
    assert told(tmp_path, BLOCK, fit="def use(model):\n    model.eval()\n") == expected


NAMED = """
    class Volume(nn.Module):
        def forward(self, x: Tensor, more):
            reference = torch.exp(x)
            total = {value}
            {line}
            {use}
"""


@pytest.mark.parametrize(
    ("value", "line", "use"),
    [
        ("reference", "reference.mul_(2)", "return total + more"),
        ("reference", "total[:, 1:] = 0", "return torch.dot(reference, more)"),
        ("reference", "squares = reference.mul_(2)", "return squares - total"),
    ],
)
def test_a_second_name_is_no_copy(tmp_path, value, line, use):
    assert "TS203" in told(tmp_path, NAMED.format(value=value, line=line, use=use))


@pytest.mark.parametrize(
    ("value", "line", "use"),
    [
        ("reference.clone()", "reference.mul_(2)", "return total + more"),
        ("reference", "reference = reference * 2", "return total + more"),
        ("reference", "reference.mul_(2)", "return reference + more"),
        ("reference", "total.mul_(2)", "return reference"),
        ("reference", "total.mul_(2)", "reference.copy_(total)"),
        ("reference", "total = total.float(); total.mul_(2)", "return reference + more"),
        ("reference", "total.mul_(2) if total is not reference else None", "return reference + more"),
        ("len(reference)", "total += 2", "return reference + total"),
    ],
)
def test_names_that_are_read_as_they_are(tmp_path, value, line, use):
    assert "TS203" not in told(tmp_path, NAMED.format(value=value, line=line, use=use))


def test_definitions_without_a_blank_line_between_them(tmp_path):
    close = CHART.format(kept="self.grad").replace("\n\n", "\n")
    assert told(tmp_path, close) == ["TS101"]


STEP = """
    class Descent(torch.optim.Optimizer):
        def step(self):
            for p in self.params:
                buf = self.state["momentum"]
                buf.mul_(0.9).add_(p.grad)
                if self.nesterov:
                    d = p.grad + 0.9 * buf
                else:
                    d = {value}
                {line}
                p.add_(d)
"""


@pytest.mark.parametrize(
    ("value", "line", "expected"),
    [("buf", "d.mul_(mask)", ["TS203"]), ("buf", "d = d * mask", []), ("buf.clone()", "d.mul_(mask)", [])],
)
def test_a_state_that_has_a_second_name_on_one_branch(check, value, line, expected):
    found = check(HEAD + textwrap.dedent(STEP.format(value=value, line=line)), possible=True)
    assert [f.code for f in found if f.code == "TS203"] == expected


MOVED = """
    def shift(maps: {kind}, n):
        maps = maps.flip(-1)
        {line}
        return maps
"""


@pytest.mark.parametrize("line", ["maps[..., 1:] = maps[..., :-1]", "maps[:, :, 2:] = maps[:, :, 0:-2]"])
def test_elements_that_are_moved_along(check, line):
    assert [f.code for f in check(HEAD + textwrap.dedent(MOVED.format(kind="Tensor", line=line)))] == ["TS210"]


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("Tensor", "maps[..., 1:] = maps[..., :-1].clone()"),
        ("Tensor", "maps[..., 1:] = maps[..., :-2]"),
        ("Tensor", "maps[1:, 0] = maps[:-1, 1]"),
        ("Tensor", "maps[:n] = maps[n:]"),
    ],
)
def test_elements_that_are_not_read_after_they_were_written(check, kind, line):
    assert check(HEAD + textwrap.dedent(MOVED.format(kind=kind, line=line))) == []


def test_lists_and_arrays_are_moved_as_they_should(check):
    program = """
        import numpy as np
        def shift(maps, rows: list):
            rows[1:] = rows[:-1]
            maps = np.flip(maps, 1)
            maps[:, 1:] = maps[:, :-1]
            return torch.from_numpy(maps)
    """
    assert check(HEAD + textwrap.dedent(program)) == []


EXP = """
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.exp(x)
            ctx.save_for_backward({saved})
            return y

        @staticmethod
        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            return grad * y

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x, z):
            y = Exp.apply(self.layer(x))
            {line}
            return y
"""


@pytest.mark.parametrize(
    ("saved", "line", "expected"),
    [("y", "y *= z", ["TS101"]), ("y", "y = y * z", []), ("x", "y *= z", []), ("y.clone()", "y *= z", [])],
)
def test_a_function_that_saves_what_it_returns(check, saved, line, expected):
    assert [f.code for f in check(HEAD + textwrap.dedent(EXP.format(saved=saved, line=line)))] == expected
