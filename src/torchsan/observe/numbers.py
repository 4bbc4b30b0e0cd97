"""Where a number that the program uses was computed: the statement that made it of something larger."""

from __future__ import annotations

import ast
from types import FrameType
from typing import Any

from torchsan.model import Place
from torchsan.observe import expressions as syntax
from torchsan.observe.made_from import value_of
from torchsan.observe.objects import is_a, is_tensor
from torchsan.observe.sites import frame_place

STEPS = 6


def number_made_at(frame: FrameType) -> Place | None:
    """For `g.mul_(scale)`, from `scale = limit / norm` back to `norm = stack(parts).norm()`, all in one function."""
    place = frame_place(frame)
    file = syntax.file_of(place.path)
    at = file.at(place) if file else None
    if file is None or at is None:
        return None
    given: list[ast.AST] = []
    if isinstance(at, ast.Call):
        given = [*at.args, *(keyword.value for keyword in at.keywords)]
    elif isinstance(at, ast.AugAssign):
        given = [at.value]
    for expression in given:
        statement = _followed(file, at, expression, frame, STEPS)
        if statement is not None:
            return file.place(statement, place)
    return None


def _followed(file: syntax.File, at: ast.AST, expression: ast.AST, frame: FrameType, steps: int) -> ast.stmt | None:
    for node in ast.walk(expression):
        if not isinstance(node, ast.Name) or not is_number(value_of(node, frame)):
            continue
        found = syntax.binding(file, file.function(at), node.id, getattr(at, "lineno", 0) - 1)
        if found is None or not isinstance(found[0], ast.Assign):
            continue
        deeper = _followed(file, found[0], found[1], frame, steps - 1) if steps else None
        if deeper is not None or _of_something_larger(found[1], frame):
            return deeper or found[0]
    return None


def is_number(value: Any) -> bool:
    if is_a(value, bool):
        return False
    return is_a(value, int) or is_a(value, float) or (is_tensor(value) and value.numel() == 1)


def _of_something_larger(expression: ast.expr, frame: FrameType) -> bool:
    """Computed by a call, of at least one thing that is not a number itself."""
    if not any(isinstance(node, ast.Call) for node in ast.walk(expression)):
        return False
    values = [value_of(node, frame) for node in ast.walk(expression) if isinstance(node, ast.Name)]
    return any(is_tensor(v) or is_a(v, list) or is_a(v, tuple) or is_a(v, dict) for v in values if not is_number(v))
