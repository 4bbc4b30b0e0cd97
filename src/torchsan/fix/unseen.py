"""Writes that autograd does not see, to values that have a gradient: under no_grad, through `.data` or `detach()`.

Whatever saved values are kept: the loss goes through what was written, and the gradient does not. Only differences of
losses can tell whether that matters.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from torchsan import compat
from torchsan.fix.cases import written_at
from torchsan.fix.holding import path_of
from torchsan.fix.source import Source, line_map
from torchsan.model import Finding
from torchsan.observe.sites import user_frames
from torchsan.observe.tensors import memory_of

Place = tuple[str, int]
ALIASING = {"detach", "__get__"}


class UnseenWrites(TorchFunctionMode):  # type: ignore[misc]
    """On while the program runs: the lines that make such writes."""

    def __init__(self) -> None:
        super().__init__()
        self.unseen: set[Place] = set()
        # Memory of values with a gradient that was handed out without it.
        self._handed_out: dict[int, StorageWeakRef] = {}

    def start(self) -> None:
        self.__enter__()

    def stop(self) -> None:
        self.__exit__(None, None, None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if first is not None and is_write(func) and self._is_unseen(func, first):
            frames = user_frames(sys._getframe(1), 1)
            if frames:
                self.unseen.add((path_of(frames[0]), frames[0].f_lineno))
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if first is not None and name in ALIASING and isinstance(result, torch.Tensor) and result is not first:
            self._hand_out(first, result)
        return result

    def _hand_out(self, value: torch.Tensor, alias: torch.Tensor) -> None:
        memory = memory_of(alias)
        if memory is None or memory != memory_of(value) or alias.requires_grad:
            return
        if compat.grad_fn_of(value) is not None:
            self._handed_out[memory] = StorageWeakRef(value.untyped_storage())

    def _is_unseen(self, func: Any, written: torch.Tensor) -> bool:
        if compat.grad_fn_of(written) is not None:
            return not torch.is_grad_enabled() or getattr(func, "__name__", "") == "__set__"
        known = self._handed_out.get(memory_of(written) or 0)
        return known is not None and not known.expired()


def is_write(func: Any) -> bool:
    """By the name that torch gives it."""
    name = getattr(func, "__name__", "")
    if name == "__set__":
        return getattr(func, "__self__", None) is torch.Tensor.data
    inplace = name.endswith("_") and not name.endswith("__") and name not in ("requires_grad_", "detach_")
    return inplace or name == "__setitem__" or (name.startswith("__i") and name not in ("__index__", "__invert__"))


def still_unseen(unseen: set[Place], finding: Finding, old: Source, changed: dict[str, Source]) -> list[Place]:
    """Those of the lines that make the write of the finding, or that the edit has put there."""
    mutated = written_at(finding)
    found = []
    for path, line in sorted(unseen):
        new = changed.get(path)
        if new is None or path != old.path:
            was: int | None = line
        else:
            was = line_map(old, new).get(line)
        if was is None or (path, was) in mutated:
            found.append((path, line))
    return found
