"""Where a tensor or an array lies: addresses, not storages, since two storages can be one memory."""

from __future__ import annotations

import ctypes
import sys
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from torchsan.observe.objects import is_exact_tensor, is_tensor
from torchsan.observe.tensors import is_plain

# Above this many elements the question whether two strided views meet is answered by their bounds alone.
MAX_EXACT = 4096
# How many ways to the same byte are tried.
MAX_TRIED = 512
# Of large memory these many stretches are looked at.
STRETCHES, STRETCH = 16, 4096
_detach = torch._C.TensorBase.detach


@dataclass(frozen=True, slots=True)
class Extent:
    """The elements of one view, by address. Strides are in bytes; dimensions of one element are left out."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item: int

    @property
    def count(self) -> int:
        total = 1
        for n in self.shape:
            total *= n
        return total

    @property
    def low(self) -> int:
        return self.address + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True) if s < 0)

    @property
    def high(self) -> int:
        """The first byte after the last element."""
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True) if s > 0)
        return self.address + reach + self.item

    def folded(self) -> bool:
        """Do several elements share one place, as the rows of an expanded tensor and unfolded windows do?"""
        reach = 0
        smaller: list[tuple[int, int]] = []
        for stride, n in sorted((abs(s), n) for n, s in zip(self.shape, self.strides, strict=True)):
            # Two elements that lie so many strides apart, and as many bytes by the smaller ones.
            apart = range(1, min(n - 1, reach // stride) + 1) if stride else range(1)
            if any(_sums_to(smaller, count * stride) for count in apart[:MAX_TRIED]):
                return True
            smaller.insert(0, (stride, n))
            reach += (n - 1) * stride
        return False

    def addresses(self) -> set[int]:
        """The address of each element."""
        steps = [range(0, n * s, s) if s else (0,) * n for n, s in zip(self.shape, self.strides, strict=True)]
        return {self.address + sum(offsets) for offsets in product(*steps)}

    def meets(self, other: Extent) -> bool:
        """Do the two share at least one byte?"""
        if self.low >= other.high or other.low >= self.high:
            return False
        if self == other or self._solid() or other._solid():
            return True
        if self.item == other.item and self.count <= MAX_EXACT and other.count <= MAX_EXACT:
            return not self.addresses().isdisjoint(other.addresses())
        return True

    def _solid(self) -> bool:
        """One stretch without holes: bounds tell all."""
        return self.high - self.low == self.count * self.item

    def covers(self, other: Extent) -> bool:
        """Does this one hold every element of the other?"""
        if self == other:
            return True
        if self._solid():
            return self.low <= other.low and other.high <= self.high
        if self.item == other.item and self.count <= MAX_EXACT and other.count <= MAX_EXACT:
            return other.addresses() <= self.addresses()
        return False


def _sums_to(strides: list[tuple[int, int]], total: int, tried: int = 0) -> bool:
    """Is the total a sum of these strides, largest first, each taken at most n - 1 times forth or back?"""
    if not strides:
        return total == 0
    (stride, n), rest = strides[0], strides[1:]
    if not rest:
        return total % stride == 0 and abs(total) <= (n - 1) * stride
    reach = sum((count - 1) * smaller for smaller, count in rest)
    low, high = max(-(n - 1), -((reach - total) // stride)), min(n - 1, (total + reach) // stride)
    if high - low + tried > MAX_TRIED:
        return False  # too many ways: not known to be so
    return any(_sums_to(rest, total - k * stride, tried + high - low) for k in range(low, high + 1))


def holds_arrays(kind: type) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.ndarray)


def _is_array(value: object) -> bool:
    return holds_arrays(type(value))


def extent_of(value: Any) -> Extent | None:
    """The extent of a dense tensor or of an array; None for everything else and for what is empty."""
    try:
        if is_tensor(value):
            if not is_exact_tensor(value) and not is_plain(value):
                return None
            if value.layout is not torch.strided or value.numel() == 0:
                return None
            item = value.element_size()
            return _extent(value.data_ptr(), tuple(value.shape), tuple(s * item for s in value.stride()), item)
        if _is_array(value) and value.size and not value.dtype.hasobject:
            return _extent(value.ctypes.data, value.shape, value.strides, value.itemsize)
    except Exception:
        return None
    return None


def _extent(address: int, shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> Extent | None:
    if address == 0:
        return None
    kept = [(int(n), int(s)) for n, s in zip(shape, strides, strict=True) if n != 1]
    return Extent(address, tuple(n for n, _ in kept), tuple(s for _, s in kept), item)


def stretches_of(values: Iterable[Any]) -> list[tuple[int, int]]:
    """The memory that these tensors lie in, or that these storages are: its first byte, and the first behind it."""
    found = set()
    for value in values:
        if type(value) is torch.UntypedStorage or (is_tensor(value) and is_plain(value)):
            try:
                storage = value if type(value) is torch.UntypedStorage else value.untyped_storage()
                found.add((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
            except Exception:
                continue  # no memory of its own
        elif isinstance(value, (list, tuple)):
            found.update(stretches_of(value))
    return sorted(found)


def lies_in(value: Any, stretches: list[tuple[int, int]]) -> bool:
    """Does a tensor begin in one of these? Answered in a hurry: True where it takes more than a look."""
    if not is_exact_tensor(value):
        return True
    try:
        address = value.data_ptr()
    except Exception:
        return True
    return any(low <= address < high for low, high in stretches)


def version_of(value: Any) -> int | None:
    """How often autograd has counted a write; None where nobody counts."""
    try:
        return int(value._version) if is_tensor(value) else None
    except Exception:
        return None  # inference tensors


def contents(value: Any) -> int | None:
    """A number that changes when the values do, of large memory when stretches of it do; None where we cannot look."""
    try:
        if is_tensor(value):
            if value.device.type != "cpu":
                return None
            data = _detach(value)
            if not data.is_contiguous():
                with torch.no_grad():
                    data = data.contiguous() if data.numel() * data.element_size() <= 1 << 22 else data.flatten()[:4096]
            return _checksum(data.data_ptr(), data.numel() * data.element_size())
        if _is_array(value):
            array = value if value.flags.c_contiguous else value.copy()
            return _checksum(array.ctypes.data, array.nbytes)
    except Exception:
        return None
    return None


def _checksum(address: int, size: int) -> int:
    if size <= STRETCHES * STRETCH:
        return zlib.crc32((ctypes.c_char * size).from_address(address))
    total = 0
    for index in range(STRETCHES):
        start = address + (size - STRETCH) * index // (STRETCHES - 1)
        total = zlib.crc32((ctypes.c_char * STRETCH).from_address(start), total)
    return total
