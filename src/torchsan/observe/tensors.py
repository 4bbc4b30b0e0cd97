"""Questions about tensors that must not disturb them."""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from torchsan import compat
from torchsan.observe.objects import is_exact_tensor, is_honest, is_tensor

_storage = torch._C.TensorBase.untyped_storage
_is_functorchs = torch._C._functorch.is_functorch_wrapped_tensor
_shape = torch._C.TensorBase.shape.__get__
_is_inference = torch._C.TensorBase.is_inference


def memory_of(tensor: Any) -> int | None:
    """The identity of a tensor's memory, shared by all its views and aliases; None where it has none."""
    kind = type(tensor)
    try:
        if kind is torch.Tensor or kind is torch.nn.Parameter:  # `in` would ask a metaclass of the program's
            return _storage(tensor)._cdata  # type: ignore[no-any-return]
        with torch._C.DisableTorchFunctionSubclass():
            return int(_storage(tensor)._cdata)
    except Exception:
        # Sparse, functorch-wrapped and other tensors without a storage of their own.
        return None


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The shape, without asking a subclass."""
    with torch._C.DisableTorchFunctionSubclass():
        return tuple(_shape(tensor))


def is_inference(tensor: torch.Tensor) -> bool:
    """Was it made in inference mode? Asked without a subclass."""
    with torch._C.DisableTorchFunctionSubclass():
        return bool(_is_inference(tensor))


def byte_range(tensor: torch.Tensor) -> tuple[int, int]:
    """First and last byte (exclusive) that the tensor can reach, from the start of its memory."""
    size = tensor.element_size()
    start = tensor.storage_offset() * size
    if tensor.numel() == 0:
        return start, start
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (reach + 1) * size


def copied(tensor: torch.Tensor) -> torch.Tensor:
    with torch.no_grad(), compat.unseen():
        return torch._C.TensorBase.detach(tensor).clone()


def changed_bytes(tensor: torch.Tensor, before: torch.Tensor) -> tuple[int, int] | None:
    """From the first to the last element that is not as it was: `x[i] = v` is a write to a part of x alone."""
    with torch.no_grad(), compat.unseen():
        now = torch._C.TensorBase.detach(tensor)
        if now.shape != before.shape or now.dtype != before.dtype:
            return byte_range(tensor)
        places = (now != before).nonzero()
        if not len(places):
            return None
        strides = torch.tensor(tensor.stride(), dtype=torch.int64)
        offsets = (places * strides).sum(1) + tensor.storage_offset()
        size = tensor.element_size()
        return int(offsets.min()) * size, (int(offsets.max()) + 1) * size


# Larger ones are compared by a checksum, which does not tell what has changed.
SMALL_BYTES = 1 << 20


def looked_at(tensor: torch.Tensor) -> object:
    """The contents as they are now, for `changed_since`; None where they cannot be looked at."""
    if tensor.device.type != "cpu" or tensor.is_quantized:
        return None
    return copied(tensor) if 0 < tensor.numel() * tensor.element_size() <= SMALL_BYTES else fingerprint(tensor)


def changed_since(tensor: torch.Tensor, contents: object) -> tuple[int, int] | None:
    """The bytes that are not what they were when they were looked at; all of them where nobody could look."""
    if is_exact_tensor(contents):
        return changed_bytes(tensor, contents)
    return byte_range(tensor) if contents is None or fingerprint(tensor) != contents else None


def touches(tensor: torch.Tensor, start: int, end: int) -> bool:
    """Whether a write between these bytes of its memory surely changed elements of a tensor.

    Of a write only its ends are known, of a tensor with gaps (a slice of columns) every element: rows of one table
    that are written and read by turns have ranges that overlap, and no element in common.
    """
    first, last = byte_range(tensor)
    if not (start < last and first < end):
        return False
    size = tensor.element_size()
    if last - first == tensor.numel() * size or (start <= first and last <= end):
        return True
    return _is_element(tensor, start) or _is_element(tensor, end - size)


def _is_element(tensor: torch.Tensor, byte: int) -> bool:
    """Whether an element of a tensor begins at this byte of its memory."""
    left, rest = divmod(byte, tensor.element_size())
    left -= tensor.storage_offset()
    if rest or left < 0:
        return False
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True), reverse=True):
        if stride:
            left -= min(left // stride, length - 1) * stride
    return bool(left == 0)


def fingerprint(tensor: torch.Tensor) -> object:
    """A value that changes when the contents do; None where they cannot be looked at.

    Draws nothing at random and bumps no version. Contents on another device are left alone: to read them would make
    the device wait.
    """
    try:
        if tensor.device.type != "cpu" or tensor.numel() == 0 or tensor.is_quantized:
            return None
        with compat.unseen(), torch.no_grad():
            data = torch._C.TensorBase.detach(tensor).contiguous()
            return _checksum(data.data_ptr(), data.numel() * data.element_size())
    except Exception:
        return None


def fingerprint_bytes(storage: torch.UntypedStorage, start: int, end: int) -> object:
    """The same for a stretch of a storage in the computer's own memory."""
    end = min(end, storage.nbytes())
    return _checksum(storage.data_ptr() + start, end - start) if end > start else None


def _checksum(address: int, size: int) -> int:
    return zlib.crc32((ctypes.c_char * size).from_address(address))


def is_plain(tensor: Any) -> bool:
    """A tensor whose memory we can reason about: dense, not inside a functorch transform."""
    kind = type(tensor)
    if not (kind is torch.Tensor or kind is torch.nn.Parameter) and not (
        is_tensor(tensor) and is_honest(kind) and not is_lazy(tensor)
    ):
        return False
    return tensor.layout is torch.strided and not _is_functorchs(tensor)


# Larger stretches of memory are compared by a sample of so many words.
SAMPLE = 4_096
WHOLE_BYTES = 64 << 10


def sample_bytes(storage: torch.UntypedStorage, start: int, end: int) -> object:
    """Like `fingerprint_bytes`, but of large stretches only a part is looked at: equal means nothing for sure then."""
    end = min(end, storage.nbytes())
    size = end - start
    if size <= 0 or storage.device.type != "cpu":
        return None
    if size <= WHOLE_BYTES:
        return fingerprint_bytes(storage, start, end)
    words = size // 4
    view = memoryview((ctypes.c_char * (words * 4)).from_address(storage.data_ptr() + start)).cast("B").cast("I")
    # An odd step does not fall into the same column of every row.
    return zlib.crc32(view[:: (words // SAMPLE) | 1].tobytes()), zlib.crc32(view[-SAMPLE:].tobytes())
