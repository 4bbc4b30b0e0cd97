"""Memory that is compared with itself: `x - previous`, where both are one and the author took them for two.

Ops are watched only from the moment on at which memory that several slots hold has been written.
"""

from __future__ import annotations

import ast
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F

from torchsan.model import Place
from torchsan.model.events import AliasedSnapshot, Line, Memory, Sure, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.holders.census import Census, Holding, Step
from torchsan.observe.holders.extents import Extent, extent_of
from torchsan.observe.holders.reading import Read, next_reads
from torchsan.observe.holders.resolving import NOTHING, value_of
from torchsan.observe.holders.storing import stored_at
from torchsan.observe.objects import is_a, is_tensor
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.sites import USER, kind_of, place_in, user_frames
from torchsan.observe.tensors import memory_of

_getframe = sys._getframe
MAX_MARKED = 2_000
METHODS = ("__sub__", "__rsub__", "sub", "subtract", "dist")
DISTANCES: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (torch, ("sub", "subtract", "dist", "cdist", "cosine_similarity")),
    (F, ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "cosine_similarity", "pairwise_distance", "kl_div")),
)


class Operands:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        # Written memory that several slots hold: by what it was written, and where the second slot was filled.
        # The tensor is known weakly: while it lives, nothing else has its memory.
        self._marked: dict[int, tuple[Write, Step, weakref.ref[Any]]] = {}
        # Pairs of write and read that were told: each side of a difference leads to the same one.
        self._told: set[tuple[Place | None, str, int]] = set()
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
            if len(group) >= 2:
                self._several(group, extents[extent], written[extents[extent]])

    def _several(self, group: list[Holding], memory: int, write: Write) -> None:
        if len(self._marked) >= MAX_MARKED:
            self._marked.clear()
        kept = min(
            group, key=lambda h: (h.step.kind != "item", h.step.kind != "local", is_a(h.value, torch.nn.Parameter))
        )
        live = next((h.value for h in group if is_tensor(h.value) and memory_of(h.value) == memory), kept.value)
        self._marked[memory] = (write, kept.step.without_frames(), weakref.ref(live))
        self._watch()
        for holding in group:
            self._differences(holding, group, write)

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
        patches = self.recorder.patches
        for name in METHODS:
            patches.set(torch.Tensor, name, self._wrapped(getattr(torch.Tensor, name)))
        for owner, names in DISTANCES:
            for name in names:
                patches.set(owner, name, self._wrapped(getattr(owner, name)))

    def _wrapped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            if len(args) >= 2 and is_tensor(args[0]) and is_tensor(args[1]):
                self._compared(args[0], args[1], _getframe(1))
            return original(*args, **kwargs)

        function.__name__ = getattr(original, "__name__", "function")
        function.__doc__ = original.__doc__
        function.__wrapped__ = original  # type: ignore[attr-defined]
        return function

    @shield
    def _compared(self, one: torch.Tensor, other: torch.Tensor, frame: FrameType) -> None:
        if not self.recorder.active or self.recorder.paused or self.recorder.backward is not None:
            return
        # Two tensors that were made of one array have a storage each; they are one by their address.
        memory = next((m for m in map(memory_of, (one, other)) if m in self._marked), None)
        marked = self._marked.get(memory) if memory is not None else None
        if marked is None or memory_of(marked[2]()) != memory:
            return
        # `x[:, None] - x[None, :]` has one memory on both sides, and compares each with all others.
        if extent_of(one) != extent_of(other) or one.shape != other.shape:
            return
        frames = user_frames(frame, 1)
        if not frames:
            return
        texts = _operand_texts(frames[0])
        if texts is None or texts[0] == texts[1]:
            return
        write, step, _ = marked
        taken = stored_at(step, user_frames(frame))
        place = place_in(frames[0].f_code, frames[0].f_lasti)
        direct = kind_of(frame.f_code) == USER
        self._tell(texts[1], texts[0], taken, write, place, "proved" if direct else "possible")

    def _tell(self, name: str, other: str, taken: Line | None, write: Write, at: Place, sure: Sure) -> None:
        key = (write.line.place if write.line is not None else None, at.path, at.line)
        if key not in self._told:
            self._told.add(key)
            self.recorder.emit(AliasedSnapshot(Memory(name), taken, write, Line(at), "operand", other, certainty=sure))


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


def _operand_texts(frame: FrameType) -> tuple[str, str] | None:
    place = place_in(frame.f_code, frame.f_lasti)
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    if isinstance(node, ast.BinOp):
        pair: list[ast.expr] = [node.left, node.right]
    elif isinstance(node, ast.Call):
        method = isinstance(node.func, ast.Attribute) and len(node.args) == 1
        pair = [node.func.value, node.args[0]] if method else list(node.args[:2])  # type: ignore[attr-defined]
    else:
        return None
    if len(pair) < 2:
        return None
    first, second = (ast.unparse(syntax.receiver(part)) for part in pair)
    return first, second
