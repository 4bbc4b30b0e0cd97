"""Writes of odd kinds, on both sensors: each is told with its line, and what is no hazard is not told."""

from __future__ import annotations

import pytest
import torch

import torchsan
from torchsan.observe.api import current
from torchsan.observe.tensors import memory_of

HAZARDS = {
    "detach_ of a view": """
        x = torch.randn(4, requires_grad=True)
        y = x * 2
        v = y[:2]
        v.detach_()  # written
    """,
    "detach_ of one of several views, as a function": """
        a, b = (torch.randn(4, requires_grad=True) * 2).chunk(2)
        torch.detach_(a)  # written
    """,
    "a normal tensor inside inference mode": """
        h = (w * 2).exp()
        with torch.inference_mode():
            h.add_(1)  # written
        h.sum().backward()
    """,
    "an inference tensor outside of it": """
        with torch.inference_mode():
            a = torch.ones(3)
        a.add_(1)  # written
    """,
    "a gradient that the next backward adds to": """
        (w * 2).sum().backward()
        z = torch.randn(3, requires_grad=True)
        out = (w.grad * z).sum()
        (w * 3).sum().backward()  # written
        out.backward()
    """,
    "a gradient that two passes have added to": """
        (w * 2).sum().backward()
        z = torch.randn(3, requires_grad=True)
        out = (w.grad * z).sum()
        (w * 3).sum().backward()  # written
        (w * 4).sum().backward()
        out.backward()
    """,
    "in the backward of a custom function": """
        class Exp(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                y = x.exp()
                ctx.save_for_backward(y)
                return y

            @staticmethod
            def backward(ctx, g):
                (y,) = ctx.saved_tensors
                y.mul_(g)  # written
                return y

        y = Exp.apply(w)
        y.sum().backward(retain_graph=True)
        y.sum().backward()
    """,
    "in a hook, while backward runs": """
        h = (w * 2).exp()
        y = h * w

        def hook(g):
            with torch.no_grad():
                h.mul_(2)  # written

        y.register_hook(hook)
        y.sum().backward()
    """,
    "through torch.ops": """
        h = (w * 2).exp()
        torch.ops.aten.mul_(h, 2)  # written
        h.sum().backward()
    """,
    "set_": """
        v = torch.randn(3)
        z = (w * v).sum()
        v.set_(torch.zeros(3))  # written
        z.backward()
    """,
    "resize_": """
        v = torch.randn(3)
        z = (w * v).sum()
        v.resize_(2)  # written
        z.backward()
    """,
    "a part of a complex number": """
        v = torch.randn(3, dtype=torch.complex64)
        z = (w * v).abs().sum()
        v.imag = torch.zeros(3)  # written
        z.backward()
    """,
    "the input of a checkpointed block": """
        from torch.utils.checkpoint import checkpoint
        x = torch.randn(2, 3)
        h = checkpoint(lambda t: (t * w).exp(), x, use_reentrant=False)
        x.mul_(2)  # written
        h.sum().backward()
    """,
    "with values that are read from the same memory, shifted": """
        history = torch.zeros(4, 3)
        with torch.no_grad():
            history[1:] = history[:-1]  # written
    """,
    "by the line that has written the same tensor many times": """
        v = torch.randn(3)
        for i in range(40):
            if i == 37:
                z = (w * v).sum()
            v.add_(1)  # written
        z.backward()
    """,
}
FINE = {
    "detach_ of what is no view": """
        y = (w * 2).exp()
        y.detach_()
        (w * y).sum().backward()
    """,
    "inference": """
        with torch.inference_mode():
            a = torch.ones(3)
            for i in range(30):
                a.add_(1)
                a[0] = 2
    """,
    "a function that says that it writes, on one of two ways": """
        class Gate(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.mark_dirty(x)
                x.expm1_()
                ctx.save_for_backward(x)
                return x

            @staticmethod
            def backward(ctx, grad):
                (y,) = ctx.saved_tensors
                return grad * (y + 1)

        def act(x, inplace):
            return Gate.apply(x) if inplace else torch.expm1(x)

        for _ in range(3):
            act(w * 2, True).sum().backward()
    """,
    "gradients that add up": """
        for _ in range(10):
            (w * 2).sum().backward()
    """,
    "one tensor between forward and forward": """
        v = torch.zeros(3)
        for i in range(40):
            v.add_(1)
            (w * v).sum().backward()
    """,
}


def _program(body: str) -> str:
    lines = body.strip("\n").splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    head = "import torch\nw = torch.randn(3, requires_grad=True)\n"
    return head + "\n".join(line[margin:] for line in lines) + "\n"


@pytest.mark.parametrize("name", HAZARDS)
def test_told_with_its_line(name, sensor, watch_program):
    watched = watch_program(_program(HAZARDS[name]))
    assert watched.report.notes == []
    assert len(watched.alarms) == 1, watched.codes
    first = next(span for span in watched.alarms[0].spans if span.role == "mutated")
    assert {first.line} == watched.marked("written")


@pytest.mark.parametrize("name", FINE)
def test_nothing_is_said(name, sensor, watch_program):
    watched = watch_program(_program(FINE[name]))
    assert watched.error is None
    assert watched.report.notes == []
    assert watched.codes == []


def test_a_line_that_goes_on_to_other_memory_is_noted_for_each(sensor):
    one, others = torch.zeros(3), [torch.randn(3) for _ in range(3)]
    with torchsan.watch():
        recorder = current()
        assert recorder is not None
        for other in others * 7:
            one.set_(other)
            one.add_(1)
        for other in others:
            assert "add_" in [write.op for write in recorder.ledger.writes_of(memory_of(other) or 0)]
        fresh = torch.zeros(3)
        for _ in range(7):
            fresh.add_(1)
        fresh.data = moved = torch.ones(3)
        for _ in range(3):
            fresh.add_(1)
        assert "add_" in [write.op for write in recorder.ledger.writes_of(memory_of(moved) or 0)]
