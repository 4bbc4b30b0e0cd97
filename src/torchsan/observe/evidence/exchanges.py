"""Values exchanged through views: the second half of the exchange reads what the first half has overwritten."""

from __future__ import annotations

import ast
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchsan import compat
from torchsan.model.events import Event, Line, Memory, OperandOverwritten
from torchsan.observe.evidence.scene import Writing
from torchsan.observe.holders.extents import Extent, extent_of
from torchsan.observe.holders.manner import Manner
from torchsan.observe.names import local_names
from torchsan.observe.objects import is_tensor
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import Site
from torchsan.observe.tensors import memory_of

MAX_OLD = 256


@dataclass(slots=True)
class _Overwritten:
    """A view whose bytes were replaced through another name while it was held."""

    view: weakref.ref[Any]
    line: Line


class Exchanges:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._last: tuple[int, ast.AST, Extent, Line] | None = None
        self._old: dict[int, _Overwritten] = {}
        # The window that each line changed last, in which memory, and how often it has slid by less than its size.
        self._windows: dict[Site, tuple[Extent, compat.WeakStorage, int]] = {}

    def windows(self, writing: Writing) -> Iterator[Event]:
        """Overlapping windows changed one after the other: each finds what the one before has left."""
        if writing.manner is not Manner.TRANSFORMED or writing.extent is None or writing.written is None:
            return
        last, memory, times = self._windows.get(writing.site, (writing.extent, None, 0))
        slid = last != writing.extent and last.shape == writing.extent.shape and last.meets(writing.extent)
        # Memory that was let go is given to the next one who asks: only what is still there is one memory.
        there = memory.get() if memory is not None else None
        slid = slid and there is not None and there._cdata == memory_of(writing.tensor)
        times = times + 1 if slid else 0
        self._windows[writing.site] = (writing.extent, compat.WeakStorage(writing.tensor), times)
        if times >= 2:
            yield OperandOverwritten(Memory(writing.name), writing.event, "windows")

    def before(self, writing: Writing) -> None:
        if writing.manner not in (Manner.FILLED, Manner.REPLACED, Manner.EDITED) or writing.target is None:
            return
        value = _source(writing)
        if value is not None and memory_of(value) == memory_of(writing.tensor):
            self._judge(writing, value)
        self._remember(writing)

    def _judge(self, writing: Writing, value: torch.Tensor) -> None:
        read = extent_of(value)
        if read is None or read == writing.target:
            return
        first = self._earlier_in_statement(writing, read)
        known = self._old.get(id(value))
        if first is None and known is not None and known.view() is value:
            first = known.line
        if first is not None:
            self.recorder.emit(OperandOverwritten(Memory(writing.name), writing.event, "exchange", first))

    def _earlier_in_statement(self, writing: Writing, read: Extent) -> Line | None:
        """`x[0], x[1] = x[1], x[0]`: all that is on the right was taken before the first target was written."""
        statement = _statement(writing)
        if self._last is None or statement is None or not isinstance(statement, ast.Assign):
            return None
        frame, earlier, extent, line = self._last
        if frame != id(writing.top) or earlier is not statement or not extent.meets(read):
            return None
        return line if isinstance(statement.value, ast.Tuple) else None

    def _remember(self, writing: Writing) -> None:
        statement, target = _statement(writing), writing.target
        self._last = (id(writing.top), statement, target, writing.line) if statement and target else None
        if target is None or writing.written is None:
            return
        for value in local_names(writing.top).values():
            if not is_tensor(value) or value is writing.tensor or not value._is_view():
                continue
            extent = extent_of(value)
            if extent is not None and target.covers(extent):
                if len(self._old) >= MAX_OLD:
                    self._old.clear()
                self._old[id(value)] = _Overwritten(weakref.ref(value), writing.line)


def _source(writing: Writing) -> torch.Tensor | None:
    """The tensor that is stored."""
    if writing.op == "__setitem__" and len(writing.args) > 2:
        value = writing.args[2]
    elif writing.op == "copy_" and len(writing.args) > 1:
        value = writing.args[1]
    else:
        return None
    return value if is_tensor(value) else None


def _statement(writing: Writing) -> ast.stmt | None:
    if writing.file is None or writing.node is None:
        return None
    return writing.file.statement(writing.node)
