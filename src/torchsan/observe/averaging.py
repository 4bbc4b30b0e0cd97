"""What the program itself adds up over the ranks: gradients, or the weights that each rank has trained for a while."""

from __future__ import annotations

import ctypes
import zlib
from types import FrameType
from typing import Any

import torch

from torchsan.observe.recorder import Recorder
from torchsan.observe.tensors import byte_range, is_plain, memory_of, sample_bytes

# So many bytes of a gradient are looked at for whether there is anything in it.
LOOKED_AT = 65_536


class Averaging:
    """Sums after a backward are of gradients; those between a step and the next backward can only be of weights."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._passed = False
        self._earlier: dict[int, int] = {}  # what had been summed since the last step when the backward began

    def begin(self) -> None:
        """There may be sums from now on. Has a backward begun since the last step?"""
        ledger = self.recorder.ledger
        last = ledger.passes[-1][0] if ledger.passes else None
        passed = last is not None and (not ledger.steps or last > ledger.steps[-1].before)
        self._passed = self.recorder.backward is not None or passed

    def before_backward(self, roots: list[Any], frame: FrameType) -> None:
        if not self._passed:
            self._passed = True
            if self._earlier or self.recorder.reduced:
                self._earlier = dict(self.recorder.reduced)
                self.recorder.reduced.clear()

    def stepped(self) -> None:
        self._passed = False
        if self._earlier or self.recorder.reduced:
            self._earlier = {}
            self.recorder.reduced.clear()

    def maybe_of_weights(self) -> bool:
        """Something was summed since the last step that may have made the weights equal again."""
        between = self._earlier if self._passed else self.recorder.reduced
        return bool(between) and any(size > 1 for size in between.values())

    def of_weights(self, parameters: list[Any]) -> bool:
        """The weights themselves were summed, or as many elements as they have."""
        summed = {**self._earlier, **self.recorder.reduced}
        if any(memory_of(p) in summed for p in parameters):
            return True
        between = self._earlier if self._passed else self.recorder.reduced
        return bool(0 < sum(p.numel() for p in parameters) <= sum(between.values()))

    def of_gradients(self, parameters: list[Any]) -> bool:
        """The gradients themselves were summed."""
        memories = {memory_of(p.grad) for p in parameters if p.grad is not None}
        return bool(memories) and memories <= self.recorder.reduced.keys()

    def of_copies(self, parameters: list[Any]) -> bool:
        """As many elements as the gradients have were summed: perhaps a copy of them, that went back afterwards."""
        wanted = sum(p.grad.numel() for p in parameters if p.grad is not None)
        weights = {memory_of(p) for p in parameters}
        summed = sum(size for memory, size in self.recorder.reduced.items() if memory not in weights)
        return bool(0 < wanted <= summed)


def digest_of(tensor: torch.Tensor) -> int:
    """One number for the contents of a tensor; of a large one only a part is looked at."""
    start, end = byte_range(tensor)
    found = sample_bytes(torch._C.TensorBase.untyped_storage(tensor), start, end)
    return zlib.crc32(repr(found).encode())


def gradient_digests(parameters: list[Any]) -> list[int]:
    """One number for each gradient; 0 where there is none, or where it begins with zeros, which tell nothing."""
    return [digest_of(p.grad) if p.grad is not None and _filled(p.grad) else 0 for p in parameters]


def _filled(gradient: torch.Tensor) -> bool:
    if not is_plain(gradient) or gradient.device.type != "cpu" or memory_of(gradient) is None:
        return False
    start, end = byte_range(gradient)
    storage = torch._C.TensorBase.untyped_storage(gradient)
    size = min(end, storage.nbytes()) - start
    if size <= 0:
        return False
    return bool(ctypes.string_at(storage.data_ptr() + start, min(size, LOOKED_AT)).strip(b"\0"))
