"""What Python asked of sizes while torch traced, as formulas of the inputs' sizes, solved for the other answer."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchsan.verify.frames import user_places
from torchsan.verify.sizes import Axis, Dimension, Sizes, parts_alone
from torchsan.verify.subject import Subject, quiet, seed_everything
from torchsan.verify.timing import time_limit
from torchsan.verify.turns import Line
from torchsan.verify.variants import Variant

Number = int | float | bool
SizesNow = dict[Axis, int]
Formula = Callable[[SizesNow], Number]
MOST_NODES, MOST_QUESTIONS = 200, 100
# Sizes offered for one question, and of one dimension.
MOST_OFFERED, MOST_OF_ONE = 24, 3
_OPERATIONS: dict[str, Callable[..., Number]] = {
    **{f"aten::{name}": getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne", "mul", "neg")},
    "aten::floor_divide": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::div": operator.truediv,
    "aten::add": lambda a, b, scale=1: a + scale * b,
    "aten::sub": lambda a, b, scale=1: a - scale * b,
    "aten::rsub": lambda a, b, scale=1: b - scale * a,
    "aten::bitwise_and": operator.and_,
    "aten::bitwise_or": operator.or_,
    "aten::bitwise_not": operator.not_,
}
_SAME = ("prim::NumToTensor", "aten::Int", "aten::detach", "aten::to")


class _Unknown(Exception):
    """It hangs on more than sizes."""


@dataclass(frozen=True)
class Question:
    """A branch on sizes: where, by which formula, and the dimensions of inputs that it reads."""

    line: Line
    answer: bool
    formula: Formula
    axes: tuple[Axis, ...]
    constants: tuple[int, ...] = ()


class _Reader:
    """Makes a formula of a traced number by way of the graph that led to it."""

    def __init__(self, subject: Subject, known: SizesNow) -> None:
        self.subject = subject
        # Asked for while torch traces, sizes are tensors, and asking makes the graph larger.
        self.known = known
        self.axes: dict[Axis, None] = {}
        self.constants: dict[int, None] = {}
        self.nodes = 0

    def formula(self, value: Any) -> Formula:
        node = value.node()
        kind = node.kind()
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise _Unknown
        if kind == "prim::Constant":
            constant = value.toIValue()
            number = constant.item() if isinstance(constant, torch.Tensor) else constant
            if isinstance(number, int):
                self.constants[number] = None
            return lambda sizes: number
        if kind == "aten::size":
            return self._size(node)
        inputs = list(node.inputs())
        if kind in _SAME:
            return self.formula(inputs[0])
        if kind not in _OPERATIONS:
            raise _Unknown
        operation = _OPERATIONS[kind]
        parts = [self.formula(part) for part in inputs[:3]]
        return lambda sizes: operation(*(part(sizes) for part in parts))

    def _size(self, node: Any) -> Formula:
        """A size of an input; one of a tensor inside is taken for that of an input that is as large."""
        inputs = list(node.inputs())
        dim = inputs[1].toIValue()
        source = inputs[0]
        shape = source.type().sizes()
        dim += len(shape) if dim < 0 else 0
        number = int(shape[dim])
        if source.node().kind() == "prim::Param":
            given = [output.debugName() for output in source.node().outputs()][-len(self.subject.tensors) :]
            axis = (self.subject.tensors[given.index(source.debugName())], dim)
            self.axes[axis] = None
            return lambda sizes: sizes.get(axis, number)
        like = [axis for axis, size in self.known.items() if size == number]
        self.axes.update(dict.fromkeys(like))

        def inner(sizes: SizesNow) -> Number:
            return next((sizes[axis] for axis in like if axis in sizes), number)

        return inner


def size_questions(subject: Subject, lines: set[Line]) -> list[Question]:
    """What the example's trace is asked about sizes on some lines."""
    from torchsan.verify.probe import Watched

    found: list[Question] = []
    known = {(i, dim): size for i in subject.tensors for dim, size in enumerate(subject.leaves[i].shape)}
    original = torch.Tensor.__bool__

    def asked(tensor: torch.Tensor) -> bool:
        answer = bool(original(tensor))
        if len(found) < MOST_QUESTIONS and not tensor.dim() and torch._C._get_tracing_state() is not None:
            place = next(iter(user_places(1)), None)
            line = (place.path, place.line) if place is not None else ("", 0)
            if line in lines:
                reader = _Reader(subject, known)
                with contextlib.suppress(Exception):
                    formula = reader.formula(torch._C._get_value_trace(tensor))
                    found.append(Question(line, answer, formula, tuple(reader.axes), tuple(reader.constants)))
        return answer

    seed_everything(subject.seed)
    watched = Watched(subject.fresh(), subject, subject.leaves)
    tensors = tuple(subject.leaves[i].detach().clone() for i in subject.tensors)
    torch.Tensor.__bool__ = asked
    try:
        with quiet(), contextlib.suppress(Exception, SystemExit), time_limit(subject.limit):
            torch.jit.trace(watched, tensors, check_trace=False, strict=False)
    finally:
        torch.Tensor.__bool__ = original
    return found


def turning_sizes(subject: Subject, question: Question, sizes: Sizes) -> Iterator[Variant]:
    """Sizes for which the answer is another: of the dimensions that vary by themselves, and of parts of them."""
    offered = 0
    for dimension in _dimensions(subject, question, sizes):
        most = offered + MOST_OF_ONE
        for new in _candidates(dimension.size, question.constants):
            now = dimension.sizes(subject, new)
            with contextlib.suppress(ZeroDivisionError):
                variant = dimension.variant(subject, new)
                if now is None or variant is None or bool(question.formula(now)) == question.answer:
                    continue
                offered += 1
                yield variant
                if offered == most:
                    break
        if offered >= MOST_OFFERED:
            return


def _dimensions(subject: Subject, question: Question, sizes: Sizes) -> list[Dimension]:
    known = [d for d in sizes.dimensions if set(d.axes) & set(question.axes)]
    parts = [part for dimension in known if not dimension.units for part in parts_alone(subject, dimension)]
    single = [Dimension.alone(subject, (axis,)) for axis in question.axes]
    found = {d.axes: d for d in [*single, *parts, *known]}
    # What eager is known to accept comes first.
    return sorted(found.values(), key=lambda d: d not in known)


def _candidates(size: int, constants: tuple[int, ...]) -> list[int]:
    """The multiples and divisors first, which grouped heads and windows ask for; then the nearest, and what the branch
    itself names."""
    whole = [size * 2, *(d for d in range(size // 2, 0, -1) if size % d == 0), size * 3, size * 4]
    near = [new for step in range(1, 33) for new in (size + step, size - step)]
    named = [constant + step for constant in constants for step in (0, 1, -1)]
    return [new for new in dict.fromkeys([*whole, *near, *range(1, 20), *named]) if new > 0 and new != size]
