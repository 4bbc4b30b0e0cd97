"""A layer that is made in a default argument: every module that was built without one has the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch

from torchsan.model import Place
from torchsan.model.events import AliasedSnapshot, Event, Line, Memory, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.holders.classes import bases_of
from torchsan.observe.holders.slots import Census, Step
from torchsan.observe.objects import attributes_of, class_members, entries_of, tensors_of
from torchsan.observe.sites import place_in
from torchsan.observe.tensors import memory_of


def events_of(census: Census, memories: frozenset[int], write: Write) -> Iterator[Event]:
    """What is to be told at a step that moves this memory."""
    for step, layer in census.modules:
        default = next((one for one in step.up() if one.kind == "default"), None)
        function: Any = default.function if default is not None else None
        if default is None or function is None or not memories.intersection(_trained(layer)):
            continue
        owners = list(_owners(census, layer, function))
        made = _made_at(function, str(default.key)) if len(owners) >= 2 else None
        if made is None:
            continue
        # Blocks of one network may share what they were built with. Here the one is trained, and moves a part of the
        # other, whose own weights stay.
        left = [any(memory not in memories for memory in _trained(module)) for _, module in owners]
        (first, _), (second, _) = owners[left.index(min(left))], owners[left.index(max(left))]
        sure = first != second
        yield AliasedSnapshot(
            Memory(second if sure else owners[1][0], "parameter"), Line(made), write, None, "default", first,
            certainty="proved" if sure else "possible",
        )  # fmt: skip
        return


def _trained(module: torch.nn.Module) -> Iterator[int | None]:
    """The memory of the parameters that ask for gradients."""
    for _, tensor, kind in tensors_of(module):
        if kind == "parameter" and tensor.requires_grad:
            yield memory_of(tensor)


def _owners(census: Census, layer: torch.nn.Module, function: FunctionType) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules that this function has built and that have the layer, with the name that it has there."""
    for step, module in census.modules:
        if not any(class_members(cls).get("__init__") is function for cls in bases_of(type(module))):
            continue
        for name, part in entries_of(attributes_of(module).get("_modules")):
            if part is layer and not _is_of_default(step):
                yield f"{step.path}.{name}", module


def _is_of_default(step: Step) -> bool:
    return any(one.kind == "default" for one in step.up())


def _made_at(function: FunctionType, argument: str) -> Place | None:
    """The expression that makes the default. What has a name besides may be meant to be shared."""
    at = place_in(function.__code__, 0)
    file = syntax.file_of(at.path)
    node = file.definition(function.__code__) if file is not None else None
    if file is None or node is None:
        return None
    value = dict(_defaults(node.args)).get(argument)
    return file.place(value, at) if value is not None and _is_made_there(value) else None


def _defaults(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    positional = [*arguments.posonlyargs, *arguments.args]
    for argument, value in zip(reversed(positional), reversed(arguments.defaults), strict=False):
        yield argument.arg, value
    for argument, given in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if given is not None:
            yield argument.arg, given


def _is_made_there(value: ast.expr) -> bool:
    """`nn.Linear(4, 4)`, alone or in a tuple or a list."""
    if isinstance(value, (ast.Tuple, ast.List)):
        return any(map(_is_made_there, value.elts))
    return isinstance(value, ast.Call)
