"""Which names of the program hold the memory that a line writes: a new value for one of them must reach the others."""

from __future__ import annotations

import os
from types import FrameType
from typing import Any

import torch

from torchsan.fix.trial import Alias
from torchsan.observe.guards import guards
from torchsan.observe.sites import user_frames
from torchsan.observe.tensors import memory_of

CALLERS = 3


class AliasLog:
    """Told of every write before it is made."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int], list[Alias]] = {}

    def start(self) -> None:
        guards.add(self._written)

    def stop(self) -> None:
        guards.remove(self._written)

    def _written(self, tensors: tuple[Any, ...], frame: FrameType) -> None:
        frames = user_frames(frame, CALLERS)
        for tensor in tensors:
            memory = memory_of(tensor) if frames else None
            if memory is None:
                continue
            known = self.found.setdefault((_path(frames[0]), frames[0].f_lineno), [])
            for depth, one in enumerate(frames):
                known += [alias for alias in _names(one, depth, tensor, memory) if alias not in known]


def _names(frame: FrameType, depth: int, written: torch.Tensor, memory: int) -> list[Alias]:
    found = []
    for name, value in list(frame.f_locals.items()):
        if isinstance(value, torch.Tensor) and memory_of(value) == memory:
            whole = value.shape == written.shape and value.storage_offset() == written.storage_offset()
            found.append(Alias(_path(frame), frame.f_lineno, name, depth, whole))
    return found


def _path(frame: FrameType) -> str:
    return os.path.realpath(frame.f_code.co_filename)
