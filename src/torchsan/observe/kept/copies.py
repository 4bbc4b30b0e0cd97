"""Copies that nobody needed: `clone()` of a value after which neither side was written while both lived.

Told only of what a graph computes with, whole and dense: a copy of a small view frees the large memory, one of an
expanded tensor has another layout, and what is outside of graphs is written by optimizers and backward passes. Any
doubt (a write to either memory, or to what lies at its address later; memory that NumPy can see) counts as a need.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from torchsan import compat
from torchsan.model.events import Line
from torchsan.model.memory_events import CopyUnneeded
from torchsan.observe.clock import clock
from torchsan.observe.hurry import named_like
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.sites import USER, Site, kind_of, site_of
from torchsan.observe.tensors import memory_of

_getframe = sys._getframe
# Smaller copies are not worth a word.
SMALLEST = 64 * 1024
MAX_PENDING = 512


@dataclass(slots=True)
class _Line:
    """What is known of the copies that one line makes."""

    bytes: int = 0
    times: int = 0
    # Both sides were there when a backward began: the copy takes memory that the step needs.
    together: bool = False
    needed: bool = False


@dataclass(slots=True)
class _Copy:
    site: Site
    before: int
    memories: tuple[int, int]
    alive: tuple[compat.WeakStorage, compat.WeakStorage]


@dataclass(slots=True)
class CopySensor:
    recorder: Recorder
    exposed: Callable[[int], Any] = lambda memory: None
    _lines: dict[Site, _Line] = field(default_factory=dict)
    _pending: deque[_Copy] = field(default_factory=deque)

    def install(self) -> None:
        patches = self.recorder.patches
        for owner in (torch.Tensor, torch):
            patches.set(owner, "clone", self._cloning(owner.clone))
        self.recorder.before_backward.append(self._before_backward)
        self.recorder.after_backward.append(self._after_backward)

    def close(self) -> None:
        self._check(kept=False)
        for site, line in self._lines.items():
            if line.times and line.together and not line.needed:
                self.recorder.emit(CopyUnneeded(Line(site.place, site.library_place), line.bytes, line.times))

    def _cloning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def clone(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            frame = _getframe(1)
            if args and type(result) is torch.Tensor and result.grad_fn is not None and kind_of(frame.f_code) == USER:
                self._copied(args[0], result, frame)
            return result

        return named_like(clone, original)

    @shield
    def _copied(self, source: Any, copy: torch.Tensor, frame: FrameType) -> None:
        if not self.recorder.active or self.recorder.paused or type(source) is not torch.Tensor:
            return
        size = copy.numel() * copy.element_size()
        memories = memory_of(source), memory_of(copy)
        if size < SMALLEST or memories[0] is None or memories[1] is None or compat.grad_fn_of(source) is None:
            return
        site = site_of(frame)
        line = self._lines.setdefault(site, _Line())
        if line.needed:
            return
        if not source.is_contiguous() or torch._C.TensorBase.untyped_storage(source).nbytes() != size:
            line.needed = True
            return
        if len(self._pending) >= MAX_PENDING:
            self._lines[self._pending.popleft().site].needed = True
        alive = compat.WeakStorage(source), compat.WeakStorage(copy)
        self._pending.append(_Copy(site, clock.now(), (memories[0], memories[1]), alive))
        line.bytes = max(line.bytes, size)
        line.times += 1

    def _before_backward(self, roots: list[Any], frame: FrameType) -> None:
        self._check(kept=True)

    def _after_backward(self, passes: int) -> None:
        self._check(kept=False)

    @shield
    def _check(self, *, kept: bool) -> None:
        """What has been written is needed; what has lost a side without that is not."""
        still: deque[_Copy] = deque()
        for one in self._pending:
            line = self._lines[one.site]
            if line.needed or self._is_touched(one):
                line.needed = True
                continue
            if all(storage.get() is not None for storage in one.alive):
                line.together = line.together or kept
                still.append(one)
        self._pending = still

    def _is_touched(self, one: _Copy) -> bool:
        ledger = self.recorder.ledger
        return any(
            ledger.after(memory, one.before - 1, None) or self.exposed(memory) is not None for memory in one.memories
        )
