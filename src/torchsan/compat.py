"""Every private torch API that we lean on, and what happens where it is missing.

API, what it is used for, and what happens where it is missing:

- `torch.fx.traceback.format_stack`, called by anomaly mode for every node: the line of each save;
  without it saves are told without their line.
- `torch.autograd._engine_run_backward`: a look at the graph around each backward; required.
- `torch._C._autograd._get_sequence_nr`: which came first, save or write; without it versions alone decide.
- `Node.metadata`, `Node._raw_saved_*`: line and tensor of a stale save; without them the variable is not named.
- `SavedTensor.unpack`, `SavedTensor.data`: which of a custom Function's values is stale; without them the variable
  is not named.
- `UntypedStorage._weak_ref`, `_new_with_weak_ptr`, `_free_weak_ref`: memory that NumPy can write; required.
- `SavedTensor.data`, `.unpack_hook`: what a node keeps, without unpacking it; without them it is not counted.
- `torch._C._current_autograd_node`: which op needed a healed value; without it the op is not named.
- `torch._C._storage_Use_Count`, `Tensor._use_count`: whether anything can have saved a tensor; without the first, more
  contents are compared.
- `torch.utils.checkpoint._CheckpointFrame`: the inputs of checkpointed blocks; without it (or its `save_inputs`) an
  overwritten input of a block that is not reentrant is not told.
- `torch._C.DisableTorchFunction`, `_DisableTorchDispatch`: our own ops pass by the program's modes; required.
- `torch._C._len_torch_function_stack` and its kin: a look at calls while a collective is under way; without them memory
  that is touched too early is not seen.
- `torch._C._storage_Use_Count`: whether anybody else holds a memory; without it a result thrown away is not seen.
- `torch._C._len_torch_dispatch_stack`, `_get_dispatch_stack_at`: whether other modes are at work while the peak of a
  step is followed; without them it is not followed.
- `torch._C._autograd._top_saved_tensors_default_hooks` and its kin: keeping values of our own graphs from hooks of the
  program; without it a checkpoint around a compiled region may count them.
- `torch._dynamo.eval_frame._maybe_set_eval_frame`: stepping aside in compiled regions; without it we stay on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.autograd
import torch.fx.traceback

set_anomaly = torch.set_anomaly_enabled
is_anomaly = torch.is_anomaly_enabled
is_anomaly_check_nan = torch.is_anomaly_check_nan_enabled
TensorBase = torch._C.TensorBase


def _no_sequence() -> int:
    return 0


# Each thread counts for itself; `observe.clock` makes one order of it.
thread_sequence: Callable[[], int] = getattr(torch._C._autograd, "_get_sequence_nr", _no_sequence)


_functions_made = getattr(torch.autograd.function, "AUTOGRAD_FUNCTION_COUNTER", None)


def functions_made() -> str | None:
    """Another answer for every custom function that has been defined; None where torch does not count them."""
    return repr(_functions_made) if _functions_made is not None else None


def is_tracing() -> bool:
    return torch._C._get_tracing_state() is not None


def unpack(saved: Any) -> Any:
    """The value behind one entry of `_raw_saved_tensors`; raises what backward would raise."""
    take = getattr(saved, "unpack", None)
    if take is None:
        raise RuntimeError("this torch unpacks saved tensors only for their node")
    return take()


def packed(saved: Any) -> Any:
    """The tensor behind one entry of `_raw_saved_tensors`, whatever its version; None where it is not told."""
    try:
        return saved.data
    except Exception:
        return None


def grad_fn_of(tensor: torch.Tensor) -> Any:
    """The node that made a tensor. Of a view made under no_grad whose base was written since torch refuses to tell."""
    try:
        return TensorBase.grad_fn.__get__(tensor)
    except RuntimeError:
        return None


def is_leaf(tensor: torch.Tensor) -> bool:
    """Is it a leaf that torch lets be asked? See `grad_fn_of`."""
    try:
        return bool(TensorBase.is_leaf.__get__(tensor))
    except RuntimeError:
        return False


def node_sequence(node: Any) -> int:
    try:
        return int(node._sequence_nr())
    except Exception:
        return -1


class WeakStorage:
    """A reference to a tensor's memory that does not keep it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._reference = TensorBase.untyped_storage(tensor)._weak_ref()

    def get(self) -> torch.UntypedStorage | None:
        storage: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(self._reference)
        return storage

    def __del__(self) -> None:
        torch.UntypedStorage._free_weak_ref(self._reference)


def autocast_caches(tensor: torch.Tensor) -> bool:
    """Is autocast on for this tensor's device, and does it keep copies of weights?"""
    try:
        return bool(torch.is_autocast_enabled(tensor.device.type) and torch.is_autocast_cache_enabled())
    except RuntimeError:
        return False  # a device that autocast does not know


_storage_uses: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)


def may_be_saved(tensor: torch.Tensor, memory: int) -> bool:
    """Could the graph hold this tensor, or another one on its memory? Asked while its `.data` is in hand.

    Besides a node that saved it, a tensor is held by the program and, a leaf, by the node that collects its gradient;
    its memory by itself and its `.data`.
    """
    if _storage_uses is None:
        return True
    holders = 2 if tensor.requires_grad and is_leaf(tensor) else 1
    return _storage_uses(memory) > 2 or tensor._use_count() > holders


def checkpoint_frame() -> Any:
    """The class that keeps the inputs of a checkpointed block, where it has the methods that we know."""
    from torch.utils import checkpoint

    found = getattr(checkpoint, "_CheckpointFrame", None)
    return found if hasattr(found, "save_inputs") else None


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Ops that we run ourselves are none of the business of the program's own modes, which may count or change them."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        yield


@contextlib.contextmanager
def saved_unseen() -> Iterator[None]:
    """What graphs of our own save is not for the program's hooks: a checkpoint counts what they are given."""
    autograd = torch._C._autograd
    top = getattr(autograd, "_top_saved_tensors_default_hooks", None)
    hooks = []
    while top is not None and (innermost := top(True)) is not None:
        hooks.append(innermost)
        autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            autograd._push_saved_tensors_default_hooks(pack, unpack)


def current_node() -> Any:
    """The autograd node that is being evaluated in this thread, if any."""
    get = getattr(torch._C, "_current_autograd_node", None)
    return get() if get is not None else None


def function_modes() -> int:
    """How many torch function modes are in force in this thread."""
    count = getattr(torch._C, "_len_torch_function_stack", None)
    return int(count()) if count is not None else 1


def dispatch_modes() -> int:
    """How many dispatch modes are in force in this thread; some where that is not told."""
    count = getattr(torch._C, "_len_torch_dispatch_stack", None)
    return int(count()) if count is not None else 1


def is_innermost_dispatch_mode(mode: Any) -> bool:
    count = dispatch_modes()
    return bool(count and torch._C._get_dispatch_stack_at(count - 1) is mode)


def push_function_mode(mode: Any) -> None:
    torch._C._push_on_torch_function_stack(mode)


def pop_function_mode(mode: Any) -> None:
    """Take a mode away if it is the innermost; one that others stand on stays."""
    count = function_modes()
    if count and torch._C._get_function_stack_at(count - 1) is mode:
        torch._C._pop_torch_function_stack()


def storage_owners(tensor: torch.Tensor) -> int:
    """How many tensors and storages hold this memory; a large number where torch does not tell."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    return int(count(TensorBase.untyped_storage(tensor)._cdata)) if count is not None else 1 << 30


class AsSlot:
    """A tensor in the form of a node's slot."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data = data
        self.unpack_hook = None


def packed_value(slot: Any) -> Any:
    """What lies in a slot of an autograd node: the tensor, or what a saved-tensor hook made of it."""
    try:
        return slot.data
    except (RuntimeError, AttributeError):
        return None


def unpack_hook(slot: Any) -> Any:
    try:
        return slot.unpack_hook
    except (RuntimeError, AttributeError):
        return None
