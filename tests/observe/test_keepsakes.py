"""What a custom function keeps on its `ctx` by itself, written before its backward reads it."""

from __future__ import annotations

import pytest

FUNCTION = """
import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        {keep}
        return x * x

    @staticmethod
    def backward(ctx, grad):
        {read}


weight = torch.ones(3, requires_grad=True)
"""
WRITTEN = """
h = weight * 3
y = Square.apply(h)
h.add_(1)  # written
y.sum().backward()
"""
READ = "return 2 * grad * ctx.x"


@pytest.mark.parametrize(
    ("keep", "read"),
    [
        ("ctx.x = x", READ),
        ("ctx.x, ctx.n = x, 2", "x = ctx.x; return ctx.n * grad * x"),
        ("ctx.kept = [x]", "return 2 * grad * ctx.kept[0]"),
    ],
)
def test_a_write_to_what_ctx_keeps_is_told(keep, read, watch_program, sensor):
    watched = watch_program(FUNCTION.format(keep=keep, read=read) + WRITTEN)
    assert watched.error is None
    assert [finding.code for finding in watched.alarms] == ["TS201"]
    assert watched.lines("mutated") == watched.marked("written")
    assert watched.report.notes == []


@pytest.mark.parametrize(
    ("keep", "read", "program"),
    [
        # Only the form is asked for.
        ("ctx.x = x", "return grad.expand(ctx.x.shape) * 6", WRITTEN),
        ("ctx.x = x", "kept = ctx.x; return torch.ones_like(kept) * 6", WRITTEN),
        # A copy, and a write before the forward or after the backward.
        ("ctx.x = x.clone()", READ, WRITTEN),
        ("ctx.x = x", READ, "h = weight * 3\nh.add_(1)\nSquare.apply(h).sum().backward()\nh.add_(1)\n"),
        # The forward itself writes what it keeps.
        ("ctx.x = x * 2; ctx.x.div_(2)", READ, "h = weight * 3\nSquare.apply(h).sum().backward()\n"),
        # The write is to memory beside it.
        ("ctx.x = x", READ, "h = weight.repeat(2) * 3\ny = Square.apply(h[:3])\nh[3:].add_(1)\ny.sum().backward()\n"),
    ],
)
def test_right_functions_are_left_alone(keep, read, program, watch_program, sensor):
    watched = watch_program(FUNCTION.format(keep=keep, read=read) + program)
    assert watched.error is None
    assert watched.alarms == []


def test_a_function_that_is_defined_between_two_passes_is_asked_about(watch_program, sensor):
    earlier = "import torch\n\n(torch.ones(3, requires_grad=True) * 2).sum().backward()\n"
    watched = watch_program(earlier + FUNCTION.format(keep="ctx.x = x", read=READ) + WRITTEN)
    assert [finding.code for finding in watched.alarms] == ["TS201"]
    assert watched.report.notes == []
