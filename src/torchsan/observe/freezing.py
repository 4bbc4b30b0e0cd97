"""`freeze(t)`: any later write to this memory raises at once, at the line that writes."""

from __future__ import annotations

import threading
import weakref
from types import FrameType
from typing import Any

import torch

from torchsan.model import Place
from torchsan.observe.guards import guards
from torchsan.observe.sites import here, site_of
from torchsan.observe.tensors import memory_of


class FrozenMemoryWritten(RuntimeError):
    """A write to memory that `torchsan.freeze` protects."""


class _Frozen:
    """The memories under protection, and the recorder's patches kept in for them."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[weakref.ref[torch.Tensor], Place]] = {}
        self._lock = threading.Lock()
        self._keeper: Any = None

    def add(self, tensor: torch.Tensor, place: Place) -> None:
        memory = memory_of(tensor)
        if memory is None:
            raise TypeError("only tensors with memory of their own can be frozen")
        with self._lock:
            # The memory lives at least as long as some tensor on it does; when the last goes, so does the ban.
            self._places[memory] = (weakref.ref(tensor), place)
            if self._keeper is None:
                self._keeper = _keep_patches()
                guards.add(self.check)

    def remove(self, tensor: torch.Tensor) -> None:
        with self._lock:
            self._places.pop(memory_of(tensor) or 0, None)
            if not self._places and self._keeper is not None:
                guards.remove(self.check)
                self._keeper.stop()
                self._keeper = None

    def check(self, written: tuple[Any, ...], frame: FrameType) -> None:
        for tensor in written:
            known = self._places.get(memory_of(tensor) or 0)
            if known is None:
                continue
            if known[0]() is None:
                del self._places[memory_of(tensor) or 0]
                continue
            raise FrozenMemoryWritten(f"frozen at {known[1]}, written at {site_of(frame).place}")


def _keep_patches() -> Any:
    """The write patches must be in place even where nothing is being watched."""
    from torchsan.observe.api import current
    from torchsan.observe.recorder import Recorder

    class Borrowed:
        def stop(self) -> None:
            pass

    if current() is not None:
        return Borrowed()
    recorder = Recorder(judging=False)
    recorder.start()
    return recorder


_frozen = _Frozen()


def freeze(tensor: torch.Tensor) -> torch.Tensor:
    """From now on any write to the memory of `tensor`, by whatever name, raises at the line that writes.

    Writes that torch itself cannot see (a NumPy array on the same memory) are not stopped.
    """
    _frozen.add(tensor, here().place)
    return tensor


def thaw(tensor: torch.Tensor) -> torch.Tensor:
    """Allow writes to the memory of `tensor` again."""
    _frozen.remove(tensor)
    return tensor


__all__ = ["FrozenMemoryWritten", "freeze", "thaw"]
