"""What a collective is about, by names that mean the same on every rank.

A variable may be called alike for different things on each rank, and a place in a list tells nothing. The path of an
attribute, the key of a dictionary and the parameter of a model do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any

import torch

from torchsan import compat
from torchsan.observe import expressions as syntax
from torchsan.observe.made_from import value_of
from torchsan.observe.names import local_names, variables
from torchsan.observe.numbers import is_number
from torchsan.observe.objects import attributes_of, entries_of, is_a, is_exactly, is_tensor, items_of
from torchsan.observe.sites import frame_place, user_frames
from torchsan.observe.tensors import memory_of

FRAMES = 3
DEPTH = 3
# So many entries of one container, and so many values in all, are looked at for one call.
WIDTH, BUDGET = 64, 4_000
VIEWS = ("items", "keys")
# So many assignments are followed from what a call is given to what it was made of.
BINDINGS = 3


def subjects(memory: int, frame: FrameType) -> Iterator[str]:
    """The names of a memory, and the keys at which the loops around the call stand."""
    frames = user_frames(frame)[:FRAMES]
    budget = [BUDGET]
    for name, value in variables(frames):
        # A plain variable may be called anything on any rank, and so may that of a module.
        if not is_tensor(value) and not is_a(value, ModuleType):
            yield from _held(name, value, memory, DEPTH, budget)
    for user in frames:
        yield from keys_gone_through(user)


def _held(name: str, value: Any, memory: int, depth: int, budget: list[int]) -> Iterator[str]:
    budget[0] -= 1
    if budget[0] < 0:
        return
    if is_tensor(value):
        if memory in (memory_of(value), memory_of(value.grad) if compat.is_leaf(value) else None):
            yield name
    elif is_a(value, torch.nn.Module):
        yield from _in_module(name, value, memory)
    elif depth:
        inner = items_of(value, WIDTH) if depth == DEPTH or is_a(value, dict) else []
        for key, item in (*inner, *_attributes(value)):
            yield from _held(f"{name}{key}", item, memory, depth - 1, budget)


def _in_module(name: str, module: torch.nn.Module, memory: int) -> Iterator[str]:
    for inner, parameter in module.named_parameters():
        if memory in (memory_of(parameter), memory_of(parameter.grad)):
            yield f"{name}.{inner}"
    for inner, buffer in module.named_buffers():
        if memory == memory_of(buffer):
            yield f"{name}.{inner}"


def _attributes(value: Any) -> list[tuple[str, Any]]:
    return [(f".{key}", item) for key, item in entries_of(attributes_of(value, WIDTH))]


def keys_gone_through(frame: FrameType) -> Iterator[str]:
    """`counts['car']` inside of `for name, n in counts.items():`, where what is handed over was made of `n`.

    What a loop only happens to stand around, as one over tasks around a training step, is not about its keys.
    """
    place = frame_place(frame)
    file = syntax.file_of(place.path)
    call = file.at(place) if file else None
    if file is None or not isinstance(call, ast.Call):
        return
    for around in file.up(call):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return
        loops: list[Any] = [around] if isinstance(around, ast.For) else getattr(around, "generators", [])
        for loop in loops:
            key = _key(loop.target, loop.iter, frame)
            if key is not None and _made_of(file, call, loop.target, frame):
                yield key


def _key(target: ast.expr, over: ast.expr, frame: FrameType) -> str | None:
    container = over
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr in VIEWS:
        container = over.func.value
        if over.func.attr == "items" and isinstance(target, ast.Tuple) and target.elts:
            target = target.elts[0]
    if not isinstance(target, ast.Name) or not _by_key(container, frame):
        return None
    key = local_names(frame).get(target.id)
    return f"{syntax.text_of(container)}[{key!r}]" if is_exactly(key, (str, int)) else None


def _made_of(file: syntax.File, call: ast.Call, target: ast.expr, frame: FrameType) -> bool:
    """Does a number or a tensor that belongs to the loop's key go into what a call is given?"""
    names = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
    given: list[ast.AST] = [*call.args, *(keyword.value for keyword in call.keywords)]
    for _ in range(BINDINGS):
        for node in (node for expression in given for node in ast.walk(expression)):
            if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
                continue
            mentioned = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} & names
            if mentioned and _is_data(value_of(node, frame)):
                return True
        plain = [node.id for expression in given for node in ast.walk(expression) if isinstance(node, ast.Name)]
        bound = [syntax.binding(file, file.function(call), name, call.lineno - 1) for name in plain]
        given = [found[1] for found in bound if found is not None]
    return False


def _is_data(value: Any) -> bool:
    if is_tensor(value) or is_number(value):
        return True
    held = [item for _, item in items_of(value, WIDTH)]
    return bool(held) and all(is_tensor(item) or is_number(item) for item in held)


def _by_key(container: ast.expr, frame: FrameType) -> bool:
    """A dictionary or a set, whose order is nobody's choice."""
    if isinstance(container, (ast.Set, ast.SetComp)):
        return True
    if isinstance(container, ast.Call) and isinstance(container.func, ast.Name):
        return container.func.id in ("set", "frozenset")
    value = value_of(container, frame)
    return is_a(value, dict) or is_a(value, set) or is_a(value, frozenset)
