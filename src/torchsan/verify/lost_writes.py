"""Writes that a capture loses: eager in which one line writes to a copy, so that nobody else sees it.

A tracer records a write through `.data` as a write to a tensor of its own; whoever holds the first one goes on with
the old values.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchsan.model import Place
from torchsan.model.capture_events import TensorWrite
from torchsan.observe.writing import NOT_WRITES, OPERATORS
from torchsan.verify.frames import call_at, statement_at, text_of, user_places
from torchsan.verify.methods import Captured
from torchsan.verify.subject import Outcome, Plan, Subject, quiet, run_calls

# Lines that are tried, in the order in which they write.
MOST_LINES = 24
Line = tuple[str, int]


class _Writes(TorchFunctionMode):  # type: ignore[misc]
    """Notes the lines that write in place; on the line `kept_apart` a copy is written instead."""

    def __init__(self, kept_apart: Line | None = None) -> None:
        super().__init__()
        self.kept_apart = kept_apart
        self.lines: dict[Line, Place] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _writes(func) and args and isinstance(args[0], torch.Tensor):
            place = next(iter(user_places(1)), None)
            if place is not None:
                line = (place.path, place.line)
                self.lines.setdefault(line, place)
                if line == self.kept_apart:
                    args = (args[0].clone(), *args[1:])
        return func(*args, **(kwargs or {}))


def _writes(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    return name in OPERATORS or (name.endswith("_") and not name.startswith("_") and name not in NOT_WRITES)


def _run(subject: Subject, plan: Plan, kept_apart: Line | None = None) -> tuple[Outcome, dict[Line, Place]]:
    model = plan.prepared(subject.fresh())
    writes = _Writes(kept_apart)

    def call(*args: Any, **kwargs: Any) -> Any:
        with writes:
            return model(*args, **kwargs)

    return run_calls(call, subject, plan), writes.lines


def without_each(subject: Subject, plan: Plan) -> Iterator[tuple[TensorWrite, Outcome]]:
    """Every line that writes in place, and what eager does where that write reaches nobody."""
    _, lines = _run(subject, plan)
    for line, place in list(lines.items())[:MOST_LINES]:
        outcome, _ = _run(subject, plan, line)
        yield TensorWrite(_written(place), place, text_of(place)), outcome


class _OutOfPlace(TorchFunctionMode):  # type: ignore[misc]
    """On one line `x += y` computes a new tensor."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self.line = line

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        # To torch `+=` is `add_`.
        plain = getattr(torch.Tensor, name.replace("__i", "__", 1) if name in OPERATORS else name[:-1], None)
        if _writes(func) and plain is not None:
            place = next(iter(user_places(1)), None)
            if place is not None and (place.path, place.line) == self.line:
                func = plain
        return func(*args, **(kwargs or {}))


def out_of_place_captures(
    subject: Subject, plan: Plan, make: Callable[[torch.nn.Module], Captured]
) -> Iterator[tuple[Place, Captured]]:
    """Captures of the model in which one line after another writes to nothing that exists."""
    _, lines = _run(subject, plan)
    for line, place in list(lines.items())[:MOST_LINES]:
        if isinstance(statement_at(place), ast.AugAssign):
            with quiet(), _OutOfPlace(line):
                captured = make(subject.fresh())
            yield place, captured


def _written(place: Place) -> str:
    """What the line writes to, in the words of the source: `x.data` of `x.data.zero_()`, `x` of `x[0] = 1`."""
    call, statement = call_at(place), statement_at(place)
    node: ast.expr | None = None
    if call is not None and isinstance(call.func, ast.Attribute):
        node = call.func.value
    elif isinstance(statement, ast.AugAssign):
        node = statement.target
    elif isinstance(statement, ast.Assign):
        node = statement.targets[0]
    while isinstance(node, ast.Subscript):
        node = node.value
    return f"`{ast.unparse(node)}`" if node is not None else "a tensor"
