"""Which names of the program hold the memory that a line writes: a new value for one of them must reach the others."""

from __future__ import annotations

import os
from collections import Counter, deque
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
LOOKS = 3
MOST_LOOKED_AT = 20_000
DEEPEST = 3


class AliasLog:
    """Told of every write before it is made."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int], list[Alias]] = {}
        self._looked: Counter[tuple[str, int]] = Counter()

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
            if self._looked[key] < LOOKS and (self._looked[key] or len(self._looked) < MOST_LINES):
                self._looked[key] += 1
                names: set[str] = set()
                kept = _containers(frames, memory, names)
                if kept:
                    known.append(Alias(*key, HELD, kept, False, tuple(sorted(names))))
            for depth, one in enumerate(frames):
                known += [alias for alias in _names(one, depth, tensor, memory) if alias not in known]


def _containers(frames: list[FrameType], memory: int, names: set[str]) -> int:
    """How many lists, dictionaries and objects that these functions can see hold a tensor of this memory."""
    seen: set[int] = set()
    roots = [pair for frame in frames for pair in frame.f_locals.items()]
    roots += list(frames[-1].f_globals.items())
    return sum(_held(value, memory, seen, 0, name, names) for name, value in roots)


def _held(value: Any, memory: int, seen: set[int], depth: int, name: str, names: set[str]) -> int:
    if isinstance(value, torch.Tensor) or depth > DEEPEST or id(value) in seen or len(seen) > MOST_LOOKED_AT:
        return 0
    seen.add(id(value))
    inner: list[tuple[str, Any]] = []
    if isinstance(value, (list, tuple, set, deque)):
        inner = [(name, item) for item in value]
    elif isinstance(value, dict):
        # Variables of a script are names, not holders.
        inner = [(name, item) for item in value.values()] if "__builtins__" not in value else []
    elif not isinstance(value, (type, ModuleType)):
        # By the type's own name: to ask some objects for their attributes makes them act.
        plain = type(value).__module__.partition(".")[0] not in ("builtins", "torchsan", "numpy")
        inner = list(vars(value).items()) if plain and type(getattr(value, "__dict__", None)) is dict else []
    holding = [inside for inside, item in inner if isinstance(item, torch.Tensor) and memory_of(item) == memory]
    if holding:
        # A container by its own name, an object by its attributes'.
        names.update([name] if isinstance(value, (list, tuple, set, deque, dict)) else holding)
    return len(holding) + sum(_held(item, memory, seen, depth + 1, inside, names) for inside, item in inner)


def _names(frame: FrameType, depth: int, written: torch.Tensor, memory: int) -> list[Alias]:
    found = []
    for name, value in list(frame.f_locals.items()):
        if isinstance(value, torch.Tensor) and memory_of(value) == memory:
            whole = value.shape == written.shape and value.storage_offset() == written.storage_offset()
            found.append(Alias(_path(frame), frame.f_lineno, name, depth, whole))
    return found


def _path(frame: FrameType) -> str:
    return os.path.realpath(frame.f_code.co_filename)
