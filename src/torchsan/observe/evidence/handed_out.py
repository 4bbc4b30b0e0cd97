"""What was handed out or put aside, and is then written again by whoever made it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType, FunctionType

import torch

from torchsan.model.events import AliasedSnapshot, Event, Line, Memory, Sure
from torchsan.observe import expressions as syntax
from torchsan.observe.constructors import constructor_of
from torchsan.observe.evidence.arguments import arguments_of, passed_to
from torchsan.observe.evidence.scene import Writing, call_of
from torchsan.observe.evidence.second_names import binding_line
from torchsan.observe.holders.classes import is_opened
from torchsan.observe.holders.extents import Extent, extent_of
from torchsan.observe.holders.manner import Manner
from torchsan.observe.holders.reading import Read, next_reads, reads_elsewhere, reads_entry, reads_key
from torchsan.observe.holders.resolving import NOTHING, root_name, value_of
from torchsan.observe.holders.slots import Holding
from torchsan.observe.holders.storing import filled_in_this_loop, stored_at
from torchsan.observe.names import local_names
from torchsan.observe.objects import entries_of, is_a, is_tensor, items_of
from torchsan.observe.sites import frame_place

CALLERS = 6
MAX_ITEMS = 256


def returned_before(writing: Writing) -> Iterator[Event]:
    """`a = f(x); b = f(y)`, and `f` returns one buffer: the second call replaces what the first has returned."""
    if writing.extent is None or writing.target is None:
        return
    replaced = writing.manner in (Manner.REPLACED, Manner.FILLED)
    sure: Sure = "proved" if replaced else "possible"
    for caller in writing.frames[1:CALLERS]:
        found = call_of(caller)
        if found is None:
            continue
        passed = {root_name(a) for a in passed_to(found[0])} | {root_name(found[0].func)}
        for name, value in local_names(caller).items():
            if name in passed or not any(writing.target.covers(extent) for extent in _extents(value)):
                continue
            reads = next_reads(caller, name, after_loops=True) if _came_from_a_call(caller, name) else []
            if reads:
                yield AliasedSnapshot(
                    Memory(name), binding_line(caller, name), writing.event, Line(reads[0].place), "returned",
                    syntax.text_of(found[0].func), certainty=sure,
                )  # fmt: skip


def summed_into_the_first(writing: Writing) -> Iterator[Event]:
    """`total = losses[0]; total += losses[1]`: the first entry of the list becomes the sum."""
    if not isinstance(writing.written, ast.Name) or writing.manner is not Manner.ACCUMULATED or writing.file is None:
        return
    if not is_tensor(value_of(writing.written, writing.top)):
        return  # `state["mean"].add_(state["step"])`: a record whose parts are changed by one another
    added = {id(value) for value in writing.args[1:] if is_tensor(value)}
    owners = {h.step.owner for h in writing.census.holdings if id(h.value) in added and h.step.kind == "item"}
    for holding in writing.census.holdings:
        if holding.extent != writing.extent or holding.step.kind != "item" or holding.step.owner not in owners:
            continue
        container = holding.step.path.partition("[")[0]
        used = _reads_of_entry(writing.top, container, holding.step.key) if container.isidentifier() else []
        if used:
            taken = binding_line(writing.top, writing.written.id)
            # The parts of a record (`state["mean"]`) may be meant to be changed by one another.
            sure = type(holding.step.key) is int and not _is_for_its_effect(writing, container)
            yield AliasedSnapshot(
                Memory(writing.written.id), taken, writing.event, Line(used[0].place), "alias", holding.step.path,
                certainty="proved" if sure else "possible",
            )  # fmt: skip


def _reads_of_entry(frame: FrameType, container: str, key: object) -> list[Read]:
    """Where the function looks at the entry itself next: `tensors[1:]` is not the first one, nor `d["b"]` `d["a"]`."""
    held = local_names(frame).get(container)
    if type(key) is str:
        return next_reads(frame, container, after_loops=True, counts=lambda read: reads_key(read, key))
    if type(key) is not int or not isinstance(held, (list, tuple)):
        return next_reads(frame, container, after_loops=True)
    length = len(held)
    return next_reads(frame, container, after_loops=True, counts=lambda read: reads_entry(read, key, length))


def _is_for_its_effect(writing: Writing, container: str) -> bool:
    """Does the function work on the list that it was given, and hand back nothing, or that list: a reduce in place?"""
    if container not in arguments_of(writing.top) or writing.file is None or writing.node is None:
        return False
    function = writing.file.function(writing.node)
    handed_back = (n for n in writing.file.within(function) if isinstance(n, (ast.Return, ast.Yield)))
    values = {ast.unparse(n.value) for n in handed_back if n.value is not None}
    return values <= {container, "None"}


def refilled(writing: Writing) -> Iterator[Event]:
    """An entry of a container that a loop is filling is replaced by the same loop before the next one is put there."""
    if writing.manner is not Manner.REPLACED or writing.target is None:
        return
    for holding in writing.census.holdings:
        if not writing.target.covers(holding.extent) or is_a(holding.value, torch.nn.Parameter):
            continue
        found = filled_in_this_loop(holding)
        if found is None:
            continue
        root = holding.step.root
        container, frame = root.part, root.frame
        used = next_reads(frame, container, after_loops=True) if frame is not None else []
        if used:
            yield AliasedSnapshot(
                Memory(""), Line(found), writing.event, Line(used[0].place), "list", container, 2,
            )  # fmt: skip
            return


def through_a_shallow_copy(writing: Writing) -> Iterator[Event]:
    """`total = dict(state); total[key] += value`: a container of one's own, and the tensors of another's."""
    node = writing.written
    if not writing.manner.reads or not isinstance(node, ast.Name) or not _is_shallow_copy(writing, node.id):
        return
    own = local_names(writing.top).get(node.id)
    if not is_a(own, dict):
        return
    for holding in writing.census.of(writing.target) if writing.target is not None else ():
        if holding.step.kind != "item" or holding.step.owner == id(own) or is_a(holding.value, torch.nn.Parameter):
            continue
        if holding.value is not writing.tensor:
            continue
        used = _read_by_others(holding, writing)
        if used:
            taken = binding_line(writing.top, node.id)
            yield AliasedSnapshot(
                Memory(node.id), taken, writing.event, Line(used[0].place), "alias", holding.step.path
            )
            return


def _read_by_others(holding: Holding, writing: Writing) -> list[Read]:
    """Where a function further out reads the container next, by its own name for it."""
    root = holding.step.root
    value = local_names(root.frame).get(root.part) if root.frame is not None else None
    for frame in writing.frames[1:CALLERS]:
        for name, held in local_names(frame).items():
            if held is value and value is not None:
                found = next_reads(frame, name, loops=True, after_loops=True)
                if found:
                    return found
    return []


def _is_shallow_copy(writing: Writing, name: str) -> bool:
    """Did this function make the container from another one: `dict(x)`, `x.copy()`, `{**x}`, `{k: v for …}`?"""
    file, node = writing.file, writing.node
    if file is None or node is None:
        return False
    found = syntax.binding(file, file.function(node), name, writing.site.place.line)
    made = found[1] if found is not None and isinstance(found[0], (ast.Assign, ast.AnnAssign)) else None
    if isinstance(made, ast.Call):
        called = syntax.text_of(made.func).rpartition(".")[2]
        return called in ("dict", "OrderedDict", "copy")
    if isinstance(made, ast.Dict):
        return None in made.keys
    # A list of some of them may be meant to lead to them.
    return isinstance(made, ast.DictComp) and not any(generator.ifs for generator in made.generators)


def through_a_dictionary(writing: Writing) -> Iterator[Event]:
    """`merged[key] += value`, where `merged` is a state dictionary: the model that it belongs to is written."""
    node = writing.written
    if not writing.manner.reads or not isinstance(node, ast.Name) or node.id not in local_names(writing.top):
        return
    held = local_names(writing.top)[node.id]
    if not is_a(held, dict) or not any(item is writing.tensor for _, item in entries_of(held)):
        return
    owner = next((h for h in writing.census.of(writing.target) if is_a(h.value, torch.nn.Parameter)), None)  # type: ignore[arg-type]
    if owner is not None:
        taken = binding_line(writing.top, node.id)
        yield AliasedSnapshot(
            Memory(node.id), taken, writing.event, None, "memory", owner.step.path, certainty="possible"
        )


def _extents(value: object) -> list[Extent]:
    """The memory of a tensor, or of the tensors in a plain container."""
    values = [value, *(item for _, item in items_of(value, MAX_ITEMS))]
    tensors = (v for v in values if is_tensor(v) and not is_a(v, torch.nn.Parameter))
    return [extent for tensor in tensors if (extent := extent_of(tensor)) is not None]


def kept_before(writing: Writing) -> Iterator[Event]:
    """What was put into a container is then rectified or scaled by a layer that works in place."""
    found = call_of(writing.top)
    if writing.written is not None or found is None or writing.manner is not Manner.TRANSFORMED:
        return
    call, file, at = found
    if isinstance(file.parents.get(call), ast.Expr) and constructor_of(writing.frame) is None:
        return
    for holding in writing.census.holdings:
        if holding.step.kind != "item" or holding.extent != writing.extent or is_a(holding.value, torch.nn.Parameter):
            continue
        container = holding.step.path.partition("[")[0]
        if holding.step.root.frame is writing.top and "." not in container:
            # `*args` is looked up before the call, and not again.
            reads = next_reads(writing.top, container, loops=True, after_loops=True)
            used = reads[0].place if reads else None
        else:
            used = reads_elsewhere(file, at, container, file.tree)
        if used is not None:
            yield AliasedSnapshot(
                Memory(holding.step.path), stored_at(holding.step, writing.frames), writing.event, Line(used), "alias",
                syntax.text_of(call),
            )  # fmt: skip


def _came_from_a_call(frame: FrameType, name: str) -> bool:
    """Was the name bound to what a function of the user's returned or yielded?"""
    at = frame_place(frame)
    file = syntax.file_of(at.path)
    node = file.at(at) if file else None
    found = syntax.binding(file, file.function(node), name, at.line) if file and node is not None else None
    if file and node is not None and found is not None and isinstance(found[1], ast.Name):
        # `current = ahead`, and it is `ahead` that came from there.
        found = syntax.binding(file, file.function(node), found[1].id, found[0].lineno)
    if found is None or not isinstance(found[0], ast.Assign) or not isinstance(found[1], ast.Call):
        return False
    function = found[1].func
    if isinstance(function, ast.Name):
        if function.id == "next":
            return True
        value = value_of(function, frame)
        return value is not NOTHING and _is_callable_of_users(value)
    if isinstance(function, ast.Attribute):
        whole = value_of(function, frame)
        if whole is not NOTHING:
            return _is_callable_of_users(whole)
        owner = value_of(function.value, frame)
        return owner is not NOTHING and not is_tensor(owner) and is_opened(type(owner))
    return False


def _is_callable_of_users(value: object) -> bool:
    return is_a(value, FunctionType) or is_opened(type(value))
