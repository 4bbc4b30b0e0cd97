"""Memory that is copied or blended onto itself: a restore that restores nothing, an average of a thing with itself."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from itertools import zip_longest
from types import FrameType
from typing import Any

import torch

from torchsan.model import Place
from torchsan.model.events import AliasedSnapshot, Event, Line, Memory, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.evidence.scene import Writing
from torchsan.observe.holders.extents import Extent, extent_of
from torchsan.observe.holders.lineage import lineage, passed_as
from torchsan.observe.holders.resolving import value_of
from torchsan.observe.holders.slots import Census, Holding
from torchsan.observe.holders.storing import stored_at
from torchsan.observe.holders.takings import Takings
from torchsan.observe.objects import entries_of, is_a, is_tensor, sequence_of
from torchsan.observe.refusals import written_name
from torchsan.observe.sites import frame_place

BLENDING = ("add_", "sub_", "lerp_", "mul_", "div_", "__iadd__", "__isub__", "_foreach_lerp_", "_foreach_add_")
COPYING = ("copy_", "__setitem__", "_foreach_copy_")


LastWrite = Callable[[Any, Census], Write | None]


def events_of(writing: Writing, takings: Takings, last_write: LastWrite) -> Iterator[Event]:
    """Told when one memory goes under two names, one of which was taken before the memory changed."""
    if writing.op not in (*BLENDING, *COPYING) or writing.extent is None:
        return
    if not any(extent_of(value) == writing.target for value in _tensors(writing.args[1:])):
        return
    pair = _pair(writing)
    names = [ast.unparse(syntax.receiver(part)) for part in pair]
    if len(names) < 2 or names[0] == names[1]:
        return
    # The variable that leads to what is written keeps nothing; it may be an older one's, of a function that ran before.
    written_by = {ast.unparse(ancestor.node) for ancestor in lineage(pair[0], writing.frames)}
    kept = [h for h in writing.census.holdings if _is_kept(h, writing) and h.step.path not in written_by]
    kept = [h for h in kept if takings.changed_since(h)]
    if not kept:
        return
    # The slot that the operand came from, before the one of what is written.
    through = {id(ancestor.value) for ancestor in lineage(pair[1], writing.frames)}
    chosen = min(kept, key=lambda h: (not {s.owner for s in h.step.up()} & through, h.step.kind != "item"))
    moved = last_write(writing.tensor, writing.census)
    if moved is None or moved.line is None or moved.line.place == writing.place:
        moved = writing.event
    elif _is_worked_on(moved.line.place, pair[1], writing.frames):
        return  # through this very name, then handed back: `w = p.data.float(); w.add_(g); p.data.copy_(w)`
    taken = stored_at(chosen.step, writing.frames)
    yield AliasedSnapshot(Memory(names[1]), taken, moved, Line(writing.site.place), "itself", names[0])


def _is_worked_on(at: Place, operand: ast.expr, frames: list[FrameType]) -> bool:
    """Was the memory last written under a name by which the operand has come, or by a function that was given it?"""
    expression = _handle(operand)
    for frame, caller in zip_longest(frames, frames[1:]):
        if _is_worked_on_as(at, ast.unparse(expression), frame):
            return True
        if caller is None or not isinstance(expression, ast.Name):
            return False
        passed = passed_as(expression.id, value_of(expression, frame), [frame, caller])
        if passed is None:
            return False
        expression = _handle(passed)
    return False


def _handle(operand: ast.expr) -> ast.expr:
    """`w` for `w.to(p.dtype).view(-1)`, whatever has not copied this time."""
    while isinstance(operand, (ast.Subscript, ast.Call)):
        method = operand.func if isinstance(operand, ast.Call) else operand
        if not isinstance(method, (ast.Attribute, ast.Subscript)):
            break
        operand = method.value
    return operand


def _is_worked_on_as(at: Place, name: str, frame: FrameType) -> bool:
    if written_name(at) == name:
        return True
    here = frame_place(frame)
    file = syntax.file_of(here.path)
    node = file.at(here) if file is not None else None
    writer = at.function.rpartition(".")[2]
    for call in file.within(file.function(node)) if file is not None and node is not None else ():
        if not isinstance(call, ast.Call) or syntax.text_of(call.func).rpartition(".")[2] != writer:
            continue
        if name in map(ast.unparse, call.args):
            return True
    return False


def _is_kept(holding: Holding, writing: Writing) -> bool:
    """A slot beside the parameter's own: an item, a local name, an attribute that is no module's parameter."""
    if holding.extent != writing.target:
        return False
    return holding.step.kind in ("item", "local", "cell", "global") or not is_a(holding.value, torch.nn.Parameter)


def _has_memory(value: Any, memory: Extent | None) -> bool:
    """Is it of this memory, or does it hold something that is?"""
    held = [value, *(item for _, item in entries_of(value)), *sequence_of(value)]
    return memory is not None and any(extent_of(item) == memory for item in held)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if is_tensor(value):
            yield value
        else:
            yield from _tensors(sequence_of(value)[:8])


def _pair(writing: Writing) -> list[ast.expr]:
    """What the line writes and what it writes there, as it calls them; empty when the source does not tell."""
    node = writing.node
    if writing.site.library is not None and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        # `net.load_state_dict(kept)`: what is handed in must be seen to have the memory.
        handed = [a for a in node.args[:1] if _has_memory(value_of(syntax.receiver(a), writing.top), writing.target)]
        return [node.func.value, *handed]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    if isinstance(node, ast.Subscript) and writing.file is not None:
        statement = writing.file.statement(node)
        return [node, statement.value] if isinstance(statement, ast.Assign) else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not writing.op.startswith("_"):
        operand = next((a for a in node.args), next((k.value for k in node.keywords if k.arg == "other"), None))
        return [node.func.value, operand] if operand is not None else []
    if isinstance(node, ast.Call) and len(node.args) >= 2:
        return list(node.args[:2])
    return []
