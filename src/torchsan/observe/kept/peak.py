"""The peak of one step: live memory, followed op by op from one optimizer step to the next.

A dispatch mode sees the result of every op, forward and backward; a weak reference tells when its memory is freed. That
slows a step down, so one step is followed and no more: the second, when the optimizer has its state and the sizes have
settled. What an op needs inside and gives back before it returns is not seen.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchsan import compat
from torchsan.model.memory import Peak
from torchsan.observe.kept.contents import is_any
from torchsan.observe.objects import is_exact_tensor, is_tensor
from torchsan.observe.tensors import memory_of

# By address: a class may refuse to be hashed, or answer `==` itself.
PLAIN = frozenset(map(id, (torch.Tensor, torch.nn.Parameter)))
_storage_of = torch._C.TensorBase.untyped_storage


def living() -> Iterator[Any]:
    """Every plain tensor that Python knows, and its gradient."""
    # Hundreds of thousands of objects, so by their class alone, and without a call for each.
    for value in [one for one in gc.get_objects() if id(type(one)) in PLAIN]:
        yield value
        if value.requires_grad and compat.is_leaf(value) and is_exact_tensor(value.grad):
            yield value.grad


def memories() -> dict[int, compat.WeakStorage]:
    """Memory that is there now; the references keep its address its own, and nothing else."""
    return {memory: compat.WeakStorage(one) for one in living() if (memory := memory_of(one)) is not None}


class Live(TorchDispatchMode):  # type: ignore[misc]
    """Counts the bytes of all memory that ops have made and that is not freed yet."""

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self.in_backward = False
        # Whether a backward is running is known to the sensor of graphs.
        self.is_backward: Any = lambda: False
        self.forward_peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def count_what_lives(self, others: dict[int, Any]) -> None:
        for tensor in living():
            if memory_of(tensor) not in others:
                self._take(tensor)
        self.peak = self.forward_peak = self.live

    def _take(self, tensor: Any) -> None:
        memory = memory_of(tensor)
        if memory is None or memory in self._known:
            return
        storage = _storage_of(tensor)
        size = storage.nbytes()

        def freed(_: Any) -> None:
            self.live -= size
            self._known.pop(memory, None)

        self._known[memory] = weakref.ref(storage, freed)
        self.live += size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for one in result if is_any(result, (tuple, list)) else (result,):
            for tensor in one if is_any(one, (tuple, list)) else (one,):
                if is_tensor(tensor):
                    self._take(tensor)
        if self.live > self.peak:
            self.peak = self.live
            self._note()
        return result

    def _note(self) -> None:
        self.in_backward = self.is_backward()
        if not self.in_backward:
            self.forward_peak = self.live


class PeakMeter:
    """Follows one step, if that is possible: not where other modes are at work or code is compiled."""

    def __init__(self, is_backward: Any) -> None:
        self._mode: Live | None = None
        # What was there before the program is not the program's.
        self._others = memories()
        self._is_backward = is_backward
        self.found: Peak | None = None
        self.why_not = ""

    def begin(self, step: int) -> None:
        if compat.dispatch_modes() != 0:
            self.why_not = "other dispatch modes are at work"
            return
        mode = Live()
        mode.is_backward = self._is_backward
        mode.count_what_lives(self._others)
        mode.__enter__()
        self._mode, self._step, self._began = mode, step, mode.live

    def end(self) -> None:
        mode = self._mode
        if mode is None or not compat.is_innermost_dispatch_mode(mode):
            return  # somebody stands on it; asked again at the next step
        self._mode = None
        mode.__exit__(None, None, None)
        self.found = Peak(self._step, mode.peak, mode.forward_peak, self._began, mode.in_backward)

    @property
    def running(self) -> bool:
        return self._mode is not None
