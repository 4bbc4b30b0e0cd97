"""Copies for those who hold memory that somebody else writes: the run in which each holder keeps its value.

Programs are rewritten (see `counterfactual`) so that these functions stand around what is stored or written.
"""

from __future__ import annotations

import copy
import gc
import sys
from types import FrameType, FunctionType, GeneratorType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from torchsan import compat
from torchsan.observe.guards import guards
from torchsan.observe.tensors import memory_of

# More copies than these are not watched for writes.
MOST_WATCHED = 2_000
DEEPEST = 5


class Log:
    """How many copies were made, and whether one that was to stay as it was has been written."""

    def __init__(self) -> None:
        self.copies = 0
        self.written = False
        self._kept: list[torch.Tensor] = []
        self._memories: set[int] = set()
        self._leaves: set[int] = set()
        # By the memory of a copy: whether what it was copied from is still there.
        self._origins: dict[int, Any] = {}

    def start(self) -> None:
        guards.add(self._before_write)

    def stop(self) -> None:
        guards.remove(self._before_write)
        self._kept.clear()
        self._memories.clear()
        self._leaves.clear()
        self._origins.clear()

    def note(self, tensor: torch.Tensor, *, stays: bool, of: torch.Tensor | None = None) -> None:
        self.copies += 1
        if len(self._kept) >= MOST_WATCHED:
            return
        self._kept.append(tensor)
        if tensor.requires_grad and tensor.is_leaf:
            self._leaves.add(id(tensor))
        memory = memory_of(tensor)
        if stays and memory is not None and not isinstance(tensor, torch.nn.Parameter):
            self._memories.add(memory)
            if of is not None and memory_of(of) is not None:
                self._origins[memory] = StorageWeakRef(of.untyped_storage())

    def is_leaf_of_ours(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._leaves

    def _before_write(self, tensors: tuple[Any, ...], frame: FrameType) -> None:
        self.written = self.written or any(self._may_be_meant(memory_of(tensor)) for tensor in tensors)

    def _may_be_meant(self, memory: int | None) -> bool:
        """A copy is written while what it was copied from is still there to see it."""
        if memory not in self._memories:
            return False
        origin = self._origins.get(memory)
        return origin is None or not origin.expired()


_log = Log()


def log() -> Log:
    return _log


def new_log() -> Log:
    """Forget what an earlier run in this process did."""
    global _log
    _log = Log()
    return _log


def is_copy(tensor: torch.Tensor) -> bool:
    """A leaf that only this run has."""
    return _log.is_leaf_of_ours(tensor)


def kept(value: Any) -> Any:
    """What a holder stores: a copy that nobody else writes."""
    return _Copier(stays=True).copied(value)


def each(value: Any) -> Any:
    """A list of one thing many times: a copy for every place."""
    if isinstance(value, (list, tuple)):
        return type(value)(_Copier(stays=False).copied(item) for item in value)
    if isinstance(value, dict):
        return type(value)((key, _Copier(stays=False).copied(item)) for key, item in value.items())
    return kept(value)


def apart(value: Any) -> Any:
    """An expanded tensor with memory for every element."""
    if not isinstance(value, torch.Tensor):
        return own(value)
    made = value.clone(memory_format=torch.contiguous_format)
    _log.note(made, stays=False)
    return made


def own(value: Any) -> Any:
    """What somebody goes on to write: a copy of his own."""
    return _Copier(stays=False).copied(value)


def kept_data(value: Any) -> Any:
    """What may be a snapshot: a copy of a tensor or array, of those in a dictionary of states; nothing else."""
    plain = isinstance(value, (torch.Tensor, dict)) or type(value).__name__ == "ndarray"
    return _Copier(stays=True, data_only=True).copied(value) if plain else value


def own_data(value: Any) -> Any:
    """A copy of a tensor or array for somebody who goes on to write it."""
    plain = isinstance(value, torch.Tensor) or type(value).__name__ == "ndarray"
    return _Copier(stays=False, data_only=True).copied(value) if plain else value


def own_default(value: Any) -> Any:
    """A copy if the value is a default of the function that asks; what a caller gave is left alone."""
    code = sys._getframe(1).f_code
    for function in gc.get_referrers(code):
        if isinstance(function, FunctionType):
            defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
            if any(value is default for default in defaults):
                return own(value)
    return value


def _is_trained(value: Any) -> bool:
    leaf = isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf
    return leaf or isinstance(value, torch.nn.Module)


class _Copier:
    """Copies tensors inside containers; those that share memory go on sharing it among themselves."""

    def __init__(self, *, stays: bool, data_only: bool = False) -> None:
        self.stays = stays
        # What is trained is shared on purpose: modules, leaves and optimizers' lists of them.
        self.data_only = data_only
        self._storages: dict[int, torch.Tensor] = {}
        self._seen: dict[int, Any] = {}

    def copied(self, value: Any, depth: int = 0) -> Any:
        if id(value) in self._seen:
            return self._seen[id(value)]
        made = self._copied(value, depth)
        self._seen[id(value)] = made
        return made

    def _copied(self, value: Any, depth: int) -> Any:
        if self.data_only and _is_trained(value):
            return value
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.nn.Module):
            made = copy.deepcopy(value)
            for parameter in made.parameters():
                _log.note(parameter, stays=False)
            return made
        if type(value).__name__ == "ndarray":
            _log.copies += 1
            return value.copy()
        if depth < DEEPEST and isinstance(value, dict):
            made = copy.copy(value)
            for key, inner in list(value.items()):
                made[key] = self.copied(inner, depth + 1)
            return made
        if isinstance(value, GeneratorType):
            return self._generated(value)
        if depth < DEEPEST and isinstance(value, list):
            return [self.copied(item, depth + 1) for item in value]
        if depth < DEEPEST and isinstance(value, tuple):
            items = [self.copied(item, depth + 1) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        return value

    def _generated(self, values: Any) -> Any:
        for value in values:
            # One buffer may come again and again: each time a new copy.
            yield _Copier(stays=self.stays).copied(value)

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if compat.grad_fn_of(tensor) is not None:
            made = tensor.clone()
        elif isinstance(tensor, torch.nn.Parameter) or tensor.requires_grad:
            made = copy.deepcopy(tensor)
        else:
            made = self._in_new_storage(tensor)
        _log.note(made, stays=self.stays, of=tensor)
        return made

    def _in_new_storage(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout != torch.strided or type(tensor) is not torch.Tensor or tensor.is_inference():
            return tensor.clone()
        memory = memory_of(tensor)
        if memory is None:
            return tensor.clone()
        if memory not in self._storages:
            with torch.no_grad():
                count = tensor.untyped_storage().nbytes() // tensor.element_size()
                self._storages[memory] = torch.as_strided(tensor.detach(), (count,), (1,), 0).clone()
        whole = self._storages[memory]
        if whole.dtype != tensor.dtype:
            return tensor.clone()
        return torch.as_strided(whole, tensor.shape, tensor.stride(), tensor.storage_offset())
