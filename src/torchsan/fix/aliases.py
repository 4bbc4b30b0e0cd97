"""Which names of the program hold the memory that a line writes: a new value for one of them must reach the others."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch

from torchsan.compat import is_leaf, storage_owners
from torchsan.fix.holding import Known, are_apart, holders, path_of
from torchsan.fix.trial import HELD, Alias
from torchsan.observe.guards import guards
from torchsan.observe.holders.extents import extent_of
from torchsan.observe.sites import user_frames
from torchsan.observe.tensors import memory_of

CALLERS = 8
# How often it is looked for other holders than names, for one line and for all: each time is a walk over all objects.
MOST_FOR_LINE, MOST_LOOKS = 8, 60
FEW_FOR_LINE, FEW_LOOKS = 2, 16


class AliasLog:
    """Told of every write before it is made."""

    def __init__(self, *, few: bool = False) -> None:
        self._most = (FEW_FOR_LINE, FEW_LOOKS) if few else (MOST_FOR_LINE, MOST_LOOKS)
        self.found: dict[tuple[str, int], list[Alias]] = {}
        # By line: how many tensors and names hold the memory, as far as that has been looked into.
        self._looked: dict[tuple[str, int], set[tuple[int, int]]] = {}
        self._looks = 0
        self._before: Known | None = None

    def start(self) -> None:
        self._before = Known()
        guards.add(self._written)

    def stop(self) -> None:
        guards.remove(self._written)
        if self._before is not None:
            self._before.close()

    def _written(self, tensors: tuple[Any, ...], frame: FrameType) -> None:
        frames = user_frames(frame, CALLERS)
        for tensor in tensors:
            memory = memory_of(tensor) if frames else None
            if memory is None:
                continue
            key = (path_of(frames[0]), frames[0].f_lineno)
            known = self.found.setdefault(key, [])
            if self._before is not None and not is_trained(tensor) and self._is_new(key, tensor):
                by = tuple(holders(tensor, frames, self._before))
                held = Alias(*key, HELD, len(by), False, tuple(sorted({one.name for one in by})), by)
                known += [held] if by and held not in known else []
            for depth, one in enumerate(frames):
                known += [alias for alias in _names(one, depth, tensor, memory) if alias not in known]

    def _is_new(self, key: tuple[str, int], tensor: torch.Tensor) -> bool:
        """Somebody holds the memory for each of the program's references to it, and for each tensor that shares it."""
        count = (storage_owners(tensor), sys.getrefcount(tensor))
        seen = self._looked.setdefault(key, set())
        if count in seen or len(seen) >= self._most[0] or self._looks >= self._most[1]:
            return False
        seen.add(count)
        self._looks += 1
        return True


def is_trained(tensor: torch.Tensor) -> bool:
    """Parameters are written for all who hold them."""
    return tensor.requires_grad and is_leaf(tensor)


def _names(frame: FrameType, depth: int, written: torch.Tensor, memory: int) -> list[Alias]:
    found = []
    extent = extent_of(written)
    for name, value in list(frame.f_locals.items()):
        if isinstance(value, torch.Tensor) and memory_of(value) == memory:
            whole = value.shape == written.shape and value.storage_offset() == written.storage_offset()
            apart = not whole and are_apart(extent, value)
            found.append(Alias(path_of(frame), frame.f_lineno, name, depth, whole, apart=apart))
    return found
