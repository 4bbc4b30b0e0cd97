"""Memory that is compared with itself: `x - previous`, where both are one and the author took them for two.

Ops are watched only from the moment on at which memory that several slots hold has been written.
"""

from __future__ import annotations

import ast
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch

from torchsan.model import Place
from torchsan.model.events import AliasedSnapshot, Line, Memory, Sure, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.evidence import comparing
from torchsan.observe.evidence.comparing import Comparison
from torchsan.observe.evidence.copied_from import same_source
from torchsan.observe.evidence.scene import Writing
from torchsan.observe.holders.classes import is_opened
from torchsan.observe.holders.extents import Extent, extent_of
from torchsan.observe.holders.reading import Read, next_reads
from torchsan.observe.holders.resolving import NOTHING, value_of
from torchsan.observe.holders.slots import Census, Holding, Step
from torchsan.observe.holders.storing import handed_on_at, stored_at
from torchsan.observe.names import local_names
from torchsan.observe.objects import is_a, is_tensor
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.sites import USER, kind_of, place_in, user_frames
from torchsan.observe.tensors import memory_of
from torchsan.observe.writing import worth_a_look

_getframe = sys._getframe
MAX_MARKED = 2_000


@dataclass(frozen=True, slots=True)
class _Mark:
    """Written memory that several slots hold."""

    write: Write
    # Where the second slot was filled.
    step: Step
    # Known weakly: while it lives, nothing else has its memory.
    tensor: weakref.ref[Any]


class Operands:
    def __init__(self, recorder: Recorder, is_told: Callable[[torch.Tensor], bool]) -> None:
        """`is_told`: was it told already that this memory is stored again and again?"""
        self.recorder = recorder
        self._is_told = is_told
        self._marked: dict[int, _Mark] = {}
        self._visits: dict[tuple[CodeType, int], int] = {}
        # Reads that were told: each side of a difference leads to the same one, and so does every write before it.
        self._told: set[tuple[str, int]] = set()
        self._watching = False

    # -- marking ------------------------------------------------------------------------------------

    def mark(self, census: Census, written: dict[int, Write]) -> None:
        """Note the written memories that more than one slot holds as it is; read what their frames do next."""
        extents: dict[Extent, int] = {}
        for holding in census.holdings:
            memory = memory_of(holding.value) if is_tensor(holding.value) else None
            if memory is not None and memory in written:
                extents[holding.extent] = memory
        groups: dict[Extent, list[Holding]] = {}
        for holding in census.holdings:
            if holding.extent in extents:  # an array counts by its address
                groups.setdefault(holding.extent, []).append(holding)
        for extent, group in groups.items():
            if len({holding.slot for holding in group}) >= 2:
                self._several(group, extents[extent], written[extents[extent]])

    def _several(self, group: list[Holding], memory: int, write: Write) -> None:
        if len(self._marked) >= MAX_MARKED:
            self._marked.clear()
        kept = min(
            group, key=lambda h: (h.step.kind != "item", h.step.kind != "local", is_a(h.value, torch.nn.Parameter))
        )
        live = next((h.value for h in group if is_tensor(h.value) and memory_of(h.value) == memory), kept.value)
        self._marked[memory] = _Mark(write, kept.step.without_frames(), weakref.ref(live))
        self._watch()
        for holding in group:
            self._differences(holding, group, write)

    def mark_by_container(self, writing: Writing) -> None:
        """`old = self.state; self.state[k] += 1`: the one container has two names, and so have its entries."""
        memory = memory_of(writing.tensor)
        if memory is None or writing.site.library is not None:
            return
        own = {ast.unparse(ancestor.node) for ancestor in writing.lineage}
        for name, value in local_names(writing.top).items():
            if name in own or not any(a.value is value for a in writing.lineage):
                continue
            if not (is_a(value, dict) or is_a(value, list) or is_opened(type(value))):
                continue
            if memory not in self._marked:
                step = Step(None, name, "local", id(writing.top), name)
                self._marked[memory] = _Mark(writing.event, step, weakref.ref(writing.tensor))
            self._watch()
            return

    # -- what the source says of the next read ------------------------------------------------------

    def _differences(self, holding: Holding, group: list[Holding], write: Write) -> None:
        """The next read of a local name subtracts it from an expression of the same memory."""
        frame, name = holding.step.frame, holding.step.part
        if frame is None or holding.step.above is not None:
            return
        for read in next_reads(frame, name, loops=True):
            other = _subtracted_from(read)
            if other is None or name in {n.id for n in ast.walk(other) if isinstance(n, ast.Name)}:
                continue
            value = _memory_value(other, read, frame)
            if value is not None and extent_of(value) == holding.extent and value.shape == holding.value.shape:
                names = [name, syntax.text_of(other)]
                lines = {h.step.part: stored_at(h.step, [frame]) for h in group if h.step.part in names}
                # What was taken is the name that was bound last.
                names.sort(key=lambda one: -_line_number(lines.get(one)))
                self._tell(names[0], names[1], lines.get(names[0]), write, read.place, "proved")
                return

    # -- what the program does ----------------------------------------------------------------------

    def _watch(self) -> None:
        if self._watching:
            return
        self._watching = True
        comparing.watch(self.recorder.patches, self._compared)

    @shield
    def _compared(self, one: torch.Tensor, other: torch.Tensor, kind: Comparison) -> None:
        if not self.recorder.active or self.recorder.paused or self.recorder.backward is not None:
            return
        frame = _getframe(3)  # who compares
        # Two tensors that were made of one array have a storage each; they are one by their address.
        marked = self._mark_of(one) or self._mark_of(other)
        if marked is None:
            if kind == "distance":
                self._copies_compared(one, other, frame)
            return
        # `x[:, None] - x[None, :]` has one memory on both sides, and compares each with all others.
        if extent_of(one) != extent_of(other) or one.shape != other.shape or self._is_told(one):
            return
        frames = user_frames(frame, 1)
        sides = comparing.operands(frames[0]) if frames else None
        if sides is None:
            return
        texts = [ast.unparse(syntax.receiver(side)) for side in sides]
        if texts[0] == texts[1]:
            return
        sure = kind_of(frame.f_code) == USER and (kind != "equality" or comparing.decides(frames[0]))
        self._told_at(frames[0], texts[1], texts[0], marked, "proved" if sure else "possible")

    def _mark_of(self, tensor: Any) -> _Mark | None:
        memory = memory_of(tensor)
        found = self._marked.get(memory) if memory is not None else None
        return found if found is not None and memory_of(found.tensor()) == memory else None

    def _copies_compared(self, one: torch.Tensor, other: torch.Tensor, frame: FrameType) -> None:
        """A difference of copies that were both made of what is one memory by now."""
        visits = self._visits.get((frame.f_code, frame.f_lasti), 0)
        self._visits[frame.f_code, frame.f_lasti] = visits + 1
        if not worth_a_look(visits) or kind_of(frame.f_code) != USER or one.shape != other.shape:
            return
        sides = comparing.operands(frame)
        found = same_source(one, other, sides, frame) if sides is not None else None
        marked = self._mark_of(found[2]) if found is not None else None
        if found is not None and marked is not None:
            self._told_at(frame, found[1], found[0], marked, "proved")

    def _told_at(self, frame: FrameType, name: str, other: str, marked: _Mark, sure: Sure) -> None:
        frames, taken = user_frames(frame), None
        if marked.step.kind != "item":
            # What an attribute keeps for the next time; a local name beside it stands for what is new.
            sides = sorted((ast.parse(text, mode="eval").body for text in (name, other)), key=_is_name)
            taken = next((line for side in sides if (line := handed_on_at(side, frames)) is not None), None)
        taken = taken or stored_at(marked.step, frames)
        self._tell(name, other, taken, marked.write, place_in(frame.f_code, frame.f_lasti), sure)

    def _tell(self, name: str, other: str, taken: Line | None, write: Write, at: Place, sure: Sure) -> None:
        key = (at.path, at.line)
        if key not in self._told:
            self._told.add(key)
            self.recorder.emit(AliasedSnapshot(Memory(name), taken, write, Line(at), "operand", other, certainty=sure))


def _is_name(side: ast.expr) -> bool:
    return isinstance(side, ast.Name)


def _line_number(line: Line | None) -> int:
    return line.place.line if line is not None else 0


def _subtracted_from(read: Read) -> ast.expr | None:
    """The other side of the difference that this read is a side of."""
    node: ast.AST = read.node
    parent = read.file.parents.get(node)
    while isinstance(parent, (ast.Attribute, ast.Call, ast.Subscript)) and _chained(node, parent):
        node, parent = parent, read.file.parents.get(parent)
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Sub):
        return parent.right if parent.left is node else parent.left
    return None


def _chained(node: ast.AST, parent: ast.AST) -> bool:
    """`x.detach()` and `x.numpy()` have the memory of `x`."""
    if isinstance(parent, ast.Attribute):
        return syntax.same_memory(parent.attr)
    return isinstance(parent, ast.Call) and parent.func is node


def _memory_value(node: ast.expr, read: Read, frame: FrameType) -> Any:
    """What an expression has as its memory: now, or by the statement that will have bound its name by then."""
    expression = syntax.receiver(node)
    if isinstance(expression, ast.Name):
        found = syntax.binding(read.file, read.file.function(read.node), expression.id, read.place.line)
        if found is not None and isinstance(found[0], ast.Assign) and found[0].lineno > frame.f_lineno:
            expression = syntax.receiver(found[1])
    value = value_of(expression, frame)
    return None if value is NOTHING else value
