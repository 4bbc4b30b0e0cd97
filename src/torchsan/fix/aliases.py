"""Which names of the program hold the memory that a line writes: a new value for one of them must reach the others."""

from __future__ import annotations

import os
from types import FrameType, ModuleType
from typing import Any

import torch

from torchsan.fix.trial import HELD, Alias
from torchsan.observe.guards import guards
from torchsan.observe.sites import user_frames
from torchsan.observe.tensors import memory_of

CALLERS = 3
# Lines for which what the functions can see is looked through for other holders, and how far.
MOST_LINES = 24
MOST_LOOKED_AT = 20_000
DEEPEST = 3


class AliasLog:
    """Told of every write before it is made."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int], list[Alias]] = {}
        self._looked: set[tuple[str, int]] = set()

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
            key = (_path(frames[0]), frames[0].f_lineno)
            known = self.found.setdefault(key, [])
            if key not in self._looked and len(self._looked) < MOST_LINES:
                self._looked.add(key)
                kept = _containers(frames, memory)
                if kept:
                    known.append(Alias(*key, HELD, kept, whole=False))
            for depth, one in enumerate(frames):
                known += [alias for alias in _names(one, depth, tensor, memory) if alias not in known]


def _containers(frames: list[FrameType], memory: int) -> int:
    """How many lists, dictionaries and objects that these functions can see hold a tensor of this memory."""
    seen: set[int] = set()
    roots = [value for frame in frames for value in frame.f_locals.values()]
    roots += list(frames[-1].f_globals.values())
    return sum(_held(value, memory, seen, 0) for value in roots)


def _held(value: Any, memory: int, seen: set[int], depth: int) -> int:
    if isinstance(value, torch.Tensor) or depth > DEEPEST or id(value) in seen or len(seen) > MOST_LOOKED_AT:
        return 0
    seen.add(id(value))
    if isinstance(value, (list, tuple, set)):
        inner = list(value)
    elif isinstance(value, dict):
        # Variables of a script are names, not holders.
        inner = list(value.values()) if "__builtins__" not in value else []
    else:
        # By the type's own name: to ask some objects for their attributes makes them act.
        plain = type(value).__module__.partition(".")[0] not in ("builtins", "torchsan", "numpy")
        inner = list(vars(value).values()) if plain and type(getattr(value, "__dict__", None)) is dict else []
        inner = inner if not isinstance(value, (type, ModuleType)) else []
    here = sum(isinstance(item, torch.Tensor) and memory_of(item) == memory for item in inner)
    return here + sum(_held(item, memory, seen, depth + 1) for item in inner)


def _names(frame: FrameType, depth: int, written: torch.Tensor, memory: int) -> list[Alias]:
    found = []
    for name, value in list(frame.f_locals.items()):
        if isinstance(value, torch.Tensor) and memory_of(value) == memory:
            whole = value.shape == written.shape and value.storage_offset() == written.storage_offset()
            found.append(Alias(_path(frame), frame.f_lineno, name, depth, whole))
    return found


def _path(frame: FrameType) -> str:
    return os.path.realpath(frame.f_code.co_filename)
