"""What is asked of tensors, and what is kept of graphs, is not for the program to notice."""

from __future__ import annotations

import gc
import weakref
from typing import ClassVar

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import torchsan


def test_a_graph_that_failed_is_let_go_with_its_leaves(sensor):
    """Torch keeps the hooks of a saved value where no collector looks."""
    gone = []

    def fail() -> None:
        x = torch.ones(3, requires_grad=True)
        h = x.exp()
        loss = (h * h).sum()
        h.add_(1)
        gone.extend([weakref.ref(x), weakref.ref(h)])
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    gc.disable()
    try:
        with torchsan.watch() as report:
            fail()
            gc.collect()
            assert [reference() for reference in gone] == [None, None]
    finally:
        gc.enable()
    assert [finding.code for finding in report.findings] == ["TS101"]


def _name(function) -> str:
    return getattr(function, "__name__", str(function))


class Asked(torch.nn.Parameter):
    """A parameter that sees all that is asked of it."""

    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(_name(func))
        return super().__torch_function__(func, types, args, kwargs or {})


class Functions(TorchFunctionMode):
    seen: ClassVar[list[str]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(_name(func))
        return func(*args, **(kwargs or {}))


class Ops(TorchDispatchMode):
    seen: ClassVar[list[str]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(_name(func))
        return func(*args, **(kwargs or {}))


def _train(parameter: torch.Tensor) -> None:
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    total = torch.zeros(3)
    for _ in range(6):
        optimizer.zero_grad()
        h = parameter * 2
        h.add_(1)
        h[0] = 3
        h.data.mul_(2)
        total.add_(h.detach())
        h.sum().backward()
        optimizer.step()


def _seen(*modes: type) -> list[str]:
    parameter = torch.nn.Parameter(torch.ones(3)) if modes else Asked(torch.ones(3))
    for kind in (Asked, *modes):
        kind.seen = []
    if modes:
        with Functions(), Ops():
            _train(parameter)
    else:
        _train(parameter)
    return [name for kind in (Asked, *modes) for name in kind.seen]


@pytest.mark.parametrize("modes", [(), (Functions, Ops)], ids=["subclass", "modes"])
def test_subclasses_and_modes_see_what_the_program_does(modes, sensor):
    alone = _seen(*modes)
    with torchsan.watch():
        watched = _seen(*modes)
    assert watched == alone


def test_writes_after_a_mode_has_ended_are_noted(sensor):
    table = torch.zeros(4, 2)
    with torchsan.watch() as report:
        for _ in range(40):
            with Functions():
                table.add_(1)
        h = torch.ones(3, requires_grad=True).exp()
        for _ in range(40):
            h.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            h.sum().backward()
    assert [finding.code for finding in report.findings] == ["TS101"]


def test_names_of_any_class_are_passed_over(sensor, watch_program):
    watched = watch_program(
        """
        import torch

        class Odd(str):
            def startswith(self, *args):
                raise SystemError("asked")
            __repr__ = __format__ = partition = split = startswith
            def __hash__(self):
                return str.__hash__(self)

        class Thing:
            pass

        globals()[Odd("strange")] = torch.zeros(2)
        setattr(Thing, Odd("field"), torch.zeros(2))
        thing = Thing()
        x = torch.ones(3, requires_grad=True)
        h = x.exp()
        h.add_(1)  # written
        h.sum().backward()
        """
    )
    assert watched.report.notes == []
    assert watched.codes == ["TS101"]
    assert watched.lines("mutated") == watched.marked("written")


def test_a_nested_tensor_is_written_as_without_us(sensor):
    with torchsan.watch() as report:
        nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
        for _ in range(6):
            nested.mul_(2).add_(nested)
    assert nested.is_nested
    assert report.notes == []
