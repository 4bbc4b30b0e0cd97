"""A collective from its call to its end: which memory it reads and writes, and what was in there before."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torchsan import compat
from torchsan.observe.sites import Site
from torchsan.observe.tensors import byte_range, is_plain, memory_of, sample_bytes


@dataclass(slots=True)
class Side:
    """One tensor of a collective. It holds nothing that would keep the tensor's memory."""

    memory: int
    start: int
    end: int
    storage: compat.WeakStorage
    tensor: weakref.ref[torch.Tensor]
    version: int
    contents: object = None

    def look(self) -> object:
        storage = self.storage.get()
        return None if storage is None else sample_bytes(storage, self.start, self.end)

    def alive(self) -> bool:
        return self.storage.get() is not None

    def overlaps(self, memory: int, start: int, end: int) -> bool:
        return self.memory == memory and start < self.end and self.start < end and self.alive()


@dataclass(slots=True)
class Flight:
    """One call of a collective."""

    op: str
    group: str
    site: Site
    before: int
    outputs: list[Side] = field(default_factory=list)
    inputs: list[Side] = field(default_factory=list)
    work: weakref.ref[Any] | None = None
    landed: bool = False
    # Called by the program (or a library), not by torch itself; and given out as a Work to wait for.
    mine: bool = True
    # Called by a line of the user's own, which is then the line of the call.
    direct: bool = True
    # It has made us switch the recording of lines off: see `CollectiveSensor._hush`.
    hushed: bool = False
    asynchronous: bool = False
    # Whether this rank gets a result: not the source of a broadcast, and only the destination of a reduction to one.
    receives: bool = True
    dropped: bool = False
    name: str = ""
    changed: set[int] = field(default_factory=set)  # memory whose contents it changed
    row: int = -1  # its row in the ring that ranks are compared by
    # The first line that touched its memory meanwhile, and whether it wrote.
    touched: tuple[Site, bool] | None = None
    # The first that wrote, where another line has read before.
    written: Site | None = None


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an argument: one, a list of them, or lists of lists."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def sides_of(value: Any, *, look: bool) -> list[Side]:
    sides = []
    for tensor in tensors_in(value):
        memory = memory_of(tensor)
        if memory is None or not is_plain(tensor):
            continue
        start, end = byte_range(tensor)
        side = Side(memory, start, end, compat.WeakStorage(tensor), weakref.ref(tensor), _version(tensor))
        if look:
            side.contents = side.look()
        sides.append(side)
    return sides


def _version(tensor: torch.Tensor) -> int:
    try:
        return int(tensor._version)
    except Exception:
        return 0  # inference tensors count no versions


def version_of(side: Side) -> int:
    tensor = side.tensor()
    return side.version if tensor is None else _version(tensor)


def dense(tensor: torch.Tensor) -> bool:
    """Every element of a stretch of memory exactly once, in whatever order."""
    expected = 1
    for stride, size in sorted((st, sz) for sz, st in zip(tensor.shape, tensor.stride(), strict=True) if sz > 1):
        if stride != expected:
            return False
        expected *= size
    return True
