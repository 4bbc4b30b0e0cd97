"""Two that are one: parameters of one memory, modules of the same parameters, a layer held several times."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from torchsan.model.events import AliasedSnapshot, Event, Line, Memory, Sure, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.holders.classes import is_opened
from torchsan.observe.holders.extents import Extent, extent_of
from torchsan.observe.holders.slots import Census, Step
from torchsan.observe.holders.storing import stored_at
from torchsan.observe.names import local_names
from torchsan.observe.objects import attributes_of, entries_of, is_a, tensors_of
from torchsan.observe.refusals import whole_statement
from torchsan.observe.sites import frame_place
from torchsan.observe.tensors import memory_of

Found = tuple[Step, torch.nn.Module]


def events_of(
    parameters: list[Any], census: Census, memories: frozenset[int], write: Write, frames: list[FrameType], silent: Any
) -> Iterator[Event]:
    """What is to be told at a step of these parameters."""
    yield from _stepped_twice(parameters, census, write, frames)
    yield from _modules(census, memories, write, frames, silent)
    yield from _layers(census, write, frames)


# -- parameters ------------------------------------------------------------------------------------


def _stepped_twice(parameters: list[Any], census: Census, write: Write, frames: list[FrameType]) -> Iterator[Event]:
    """Two parameters of one memory in one optimizer: each step moves the memory twice."""
    known: dict[Extent, Any] = {}
    for parameter in parameters:
        extent = extent_of(parameter)
        if extent is None:
            continue
        other = known.setdefault(extent, parameter)
        if other is not parameter:
            names = [_name_of(p, census) for p in (other, parameter)]
            taken = next((stored_at(h.step, frames) for h in census.holdings if h.value is parameter), None)
            yield AliasedSnapshot(Memory(names[1], "parameter"), taken, write, None, "memory", names[0])
            return


def _name_of(parameter: Any, census: Census) -> str:
    return next((h.step.path for h in census.holdings if h.value is parameter), "a parameter")


# -- modules ---------------------------------------------------------------------------------------


def _modules(
    census: Census, memories: frozenset[int], write: Write, frames: list[FrameType], silent: Any
) -> Iterator[Event]:
    """Modules whose parameters are all one and the same trained memory."""
    groups: dict[frozenset[int | None], list[Found]] = {}
    for step, module in census.modules:
        own = frozenset(memory_of(p) for p in _parameters(module))
        if own and own <= memories:
            groups.setdefault(own, []).append((step, module))
    for group in groups.values():
        pair = next(((a, b) for a in group for b in group if _are_twins(a, b)), None)
        if pair is not None:
            (first, _), (second, copy) = pair
            shared = _shared_at(copy, silent)
            taken = shared or stored_at(second, frames)
            used = _called(second, frames)
            sure: Sure = "proved" if used is not None else "possible"
            yield AliasedSnapshot(
                Memory(second.path, "parameter"), taken, write, used, "memory", first.path, certainty=sure
            )
    yield from _same_object(frames, census, memories, write)


def _are_twins(one: Found, other: Found) -> bool:
    """Two modules of one class, neither a part of the other."""
    (first, a), (second, b) = one, other
    if a is b or type(a) is not type(b):
        return False
    if _has_part(a, b) or _has_part(b, a):
        return False
    if len(second.path) < len(first.path) or ("." in second.path[len(first.path) :] and second.root is not first.root):
        return False
    # Layers that are tied one by one belong to two owners; here whole owners are the same.
    return not _inside_twins(first, second)


def _parameters(module: torch.nn.Module) -> list[torch.Tensor]:
    return [tensor for _, tensor, kind in tensors_of(module) if kind == "parameter"]


def _has_part(module: torch.nn.Module, part: torch.nn.Module) -> bool:
    children = [child for _, child in entries_of(attributes_of(module).get("_modules"))]
    return any(child is part or (is_a(child, torch.nn.Module) and _has_part(child, part)) for child in children)


def _inside_twins(first: Step, second: Step) -> bool:
    return (
        first.above is not None
        and second.above is not None
        and first.above is second.above
        and (first.above.part.isdigit() or second.part.lstrip(".").isdigit())
    )


def _shared_at(module: torch.nn.Module, silent: dict[int, list[Any]]) -> Line | None:
    """The `a.data = b.data` that made two parameters one memory."""
    for parameter in _parameters(module):
        for write, _ in silent.get(memory_of(parameter) or 0, []):
            if write.kind == "set_data":
                return Line(whole_statement(write.site.place))
    return None


def _called(step: Step, frames: list[FrameType]) -> Line | None:
    """Where the program uses the second module."""
    name = step.part.lstrip(".")
    for frame in frames:
        place = frame_place(frame)
        file = syntax.file_of(place.path)
        for node in file.within(file.tree) if file is not None else ():
            if isinstance(node, ast.Call) and _last_name(node.func) == name and file is not None:
                return Line(file.place(node, place))
    return None


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _same_object(frames: list[FrameType], census: Census, memories: frozenset[int], write: Write) -> Iterator[Event]:
    """One module under two names, in a program that copies from the one to the other."""
    for owner, names in _namespaces(frames):
        found: dict[int, list[str]] = {}
        for name, value in names.items():
            if is_a(value, torch.nn.Module) and {memory_of(p) for p in _parameters(value)} & memories:
                found.setdefault(id(value), []).append(name)
        for aliases in found.values():
            for one in aliases:
                for other in aliases:
                    at = _transfer(one, other, frames) if one != other else None
                    if at is not None:
                        prefix = f"{owner}." if owner else ""
                        taken = _bound(one, frames, attribute=bool(owner))
                        yield AliasedSnapshot(
                            Memory(prefix + one, "parameter"), taken, write, at, "module", prefix + other
                        )
                        return


def _namespaces(frames: list[FrameType]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The names of the frames, and the attributes of what they hold."""
    met: set[int] = set()
    for frame in frames[:4]:
        names = local_names(frame)
        yield "", names
        for name, value in names.items():
            if id(value) not in met and is_opened(type(value)):
                met.add(id(value))
                held = attributes_of(value)
                yield name, dict(entries_of(held.get("_modules"))) if is_a(value, torch.nn.Module) else held


def _transfer(target: str, source: str, frames: list[FrameType]) -> Line | None:
    """`target.load_state_dict(source.state_dict())`, or a loop over the parameters of both."""
    for frame in frames:
        place = frame_place(frame)
        file = syntax.file_of(place.path)
        if file is None:
            continue
        for node in file.within(file.tree):
            if not isinstance(node, ast.Call):
                continue
            called = _last_name(node.func)
            receiver = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            if called == "load_state_dict" and node.args and _last_name(receiver) == target:
                if source in _names_in(node.args[0]):
                    return Line(file.place(node, place))
                continue
            if called == "zip" and len(node.args) >= 2:
                first, second = _names_in(node.args[0]), _names_in(node.args[1])
                if target in first and source in second:
                    return Line(file.place(node, place))
    return None


def _names_in(node: ast.AST) -> set[str]:
    return {_last_name(n) for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))}


def _bound(name: str, frames: list[FrameType], *, attribute: bool) -> Line | None:
    root = Step(None, "self", "local", 0, "self") if attribute else None
    step = Step(root, f".{name}" if attribute else name, "attribute" if attribute else "local", 0, name)
    return stored_at(step, frames)


# -- layers ----------------------------------------------------------------------------------------


def _layers(census: Census, write: Write, frames: list[FrameType]) -> Iterator[Event]:
    """`[layer] * n`: one layer where there could have been n.

    A layer with a name may be meant to be shared; one that is made inside of the list that is repeated is not.
    """
    for step, module in census.modules:
        if not is_a(module, torch.nn.ModuleList) and not is_a(module, torch.nn.Sequential):
            continue
        trained = [
            part for part in module._modules.values() if part is not None and any(True for _ in part.parameters())
        ]
        if len(trained) >= 2 and len({id(part) for part in trained}) == 1:
            taken = stored_at(step, frames)
            repeated = _repeated(taken) if taken is not None else None
            yield AliasedSnapshot(
                Memory(step.path), repeated or taken, write, None, "layers", step.path, len(trained),
                "proved" if repeated is not None else "possible",
            )  # fmt: skip


def _repeated(taken: Line) -> Line | None:
    """The statement with `[nn.Linear(4, 4)] * n`, if it stands under no condition: no other name has the layer."""
    file = syntax.file_of(taken.place.path)
    node = file.at(taken.place) if file is not None else None
    if file is None or node is None:
        return None
    function = file.function(node)
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
    bound = [syntax.binding(file, function, name, taken.place.line) for name in names]
    for statement in (node, *(found[0] for found in bound if found is not None)):
        if not isinstance(statement, ast.stmt) or isinstance(statement, (ast.For, ast.While, ast.With)):
            continue
        around = [part for part in file.up(statement) if function in file.up(part) and part is not function]
        if any(isinstance(part, (ast.If, ast.Try, ast.Match)) for part in around):
            continue
        if any(_repeats_a_construction(part) for part in ast.walk(statement)):
            return Line(file.place(statement, taken.place))
    return None


def _repeats_a_construction(node: ast.AST) -> bool:
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    return any(
        isinstance(side, (ast.List, ast.Tuple)) and len(side.elts) == 1 and isinstance(side.elts[0], ast.Call)
        for side in (node.left, node.right)
    )
