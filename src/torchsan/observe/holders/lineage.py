"""Through what a line reaches the memory that it writes: its expression, the names it came by, their containers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torchsan.observe import expressions as syntax
from torchsan.observe.holders.resolving import NOTHING, value_of
from torchsan.observe.sites import frame_place

MAX_STEPS = 48
# Functions of Python's that hand on the entries of what they are given.
_HANDING_ON = ("zip", "enumerate", "list", "tuple", "iter", "reversed", "sorted", "map", "filter", "next", "vars")


@dataclass(slots=True)
class Ancestor:
    """Something on the way to the memory, and whether one of its entries after the other is taken."""

    value: Any
    node: ast.expr
    frame: FrameType
    each: bool


def lineage(expression: ast.expr | None, frames: list[FrameType]) -> Iterator[Ancestor]:
    """What the expression of the innermost frame is, what that was taken from, and so on out to its callers."""
    if expression is not None and frames:
        for count, ancestor in enumerate(_climb(expression, frames, False, set())):
            if count >= MAX_STEPS:
                return
            yield ancestor


def _climb(node: ast.AST, frames: list[FrameType], each: bool, met: set[tuple[int, str]]) -> Iterator[Ancestor]:
    frame = frames[0]
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred, ast.Call)):
        value = value_of(node, frame)
        if value is not NOTHING:
            yield Ancestor(value, node, frame, each)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                if node.func.id in _HANDING_ON:
                    for argument in node.args:
                        yield from _climb(argument, frames, each, met)
                return
            node = node.func
        elif isinstance(node, ast.Subscript):
            each = not isinstance(node.slice, ast.Constant)
            node = node.value
        else:
            node = node.value
    if isinstance(node, ast.Name):
        yield from _from_name(node, frames, each, met)


def _from_name(node: ast.Name, frames: list[FrameType], each: bool, met: set[tuple[int, str]]) -> Iterator[Ancestor]:
    frame, name = frames[0], node.id
    if (id(frame), name) in met:
        return
    met.add((id(frame), name))
    value = value_of(node, frame)
    if value is not NOTHING:
        yield Ancestor(value, node, frame, each)
    bound = _bound(frame, name)
    if bound is not None:
        statement, made_of = bound
        yield from _climb(made_of, frames, isinstance(statement, (ast.For, ast.AsyncFor)), met)
    elif name in frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]:
        passed = passed_as(name, value, frames)
        if passed is not None:
            yield from _climb(passed, frames[1:], False, met)


def _bound(frame: FrameType, name: str) -> tuple[ast.stmt, ast.expr] | None:
    at = frame_place(frame)
    file = syntax.file_of(at.path)
    node = file.at(at) if file else None
    if file is None or node is None:
        return None
    statement = file.statement(node)
    # `x = f(x)` binds the name after the call that is under way.
    before = at.line - 1 if isinstance(statement, (ast.Assign, ast.AnnAssign)) else at.line
    return syntax.binding(file, file.function(node), name, before)


def passed_as(name: str, value: Any, frames: list[FrameType]) -> ast.expr | None:
    """The expression by which the caller has handed in the value of an argument."""
    if len(frames) < 2:
        return None
    at = frame_place(frames[1])
    file = syntax.file_of(at.path)
    call = file.at(at) if file else None
    if not isinstance(call, ast.Call):
        return None
    code = frames[0].f_code
    place = code.co_varnames.index(name) - (1 if code.co_varnames[:1] == ("self",) else 0)
    named = next((k.value for k in call.keywords if k.arg == name), None)
    by_place = named or (call.args[place] if 0 <= place < len(call.args) else None)
    # Several arguments may be one tensor.
    owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    others = (*call.args, *(k.value for k in call.keywords), *owner, call.func)
    for candidate in others if by_place is None else (by_place, *others):
        if value_of(candidate, frames[1]) is value:
            return candidate
    return by_place
