"""What a program on several ranks would do if nothing came between its ranks: the measure of edits.

Collectives are waited for at once, memory with gaps is copied whole and back, what a collective or DDP's broadcast
overwrites is kept for whoever saved it, DDP's replicas are made equal once more before their first forward, and an
optimizer whose parameters were sharded is given the sharded ones.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from torchsan import compat_distributed as distributed
from torchsan.observe.flights import dense, tensors_in
from torchsan.observe.guards import guards
from torchsan.observe.imports import when_imported
from torchsan.observe.patches import Patches

# These look at no strides.
BY_MEMORY = ("allreduce", "broadcast", "reduce", "scatter", "alltoall_base")
PAIRWISE = ("send", "recv", "recv_anysource")
FSDP = "torch.distributed.fsdp._fully_shard._fsdp_param"


class RanksHealed:
    def __init__(self) -> None:
        self._patches = Patches()
        self._hook: Any = None
        self._synced: weakref.WeakSet[Any] = weakref.WeakSet()
        # Parameters that were sharded: what was there, and what holds the sharded one.
        self._replaced: dict[int, tuple[Any, Any]] = {}

    def start(self) -> None:
        for name in distributed.COLLECTIVES:
            if name in vars(distributed.ProcessGroup) and name not in (*PAIRWISE, *distributed.WITHOUT_TENSORS):
                original = getattr(distributed.ProcessGroup, name)
                self._patches.set(distributed.ProcessGroup, name, self._method(name, original))
        ddp = distributed.ddp_class()
        self._patches.set(ddp, "_sync_buffers", self._syncing(ddp._sync_buffers))
        self._patches.set(ddp, "_pre_forward", self._first_forward(ddp._pre_forward))
        self._hook = register_optimizer_step_pre_hook(self._repoint)
        when_imported(FSDP, self._watch_sharding)

    def stop(self) -> None:
        self._hook.remove()
        self._patches.remove()

    def _method(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def method(group: Any, *args: Any, **kwargs: Any) -> Any:
            written = list(tensors_in(args[0])) if args else []
            guards.before_write(tuple(written), sys._getframe(1))
            gaps = [t for t in written if name in BY_MEMORY and not t.is_contiguous() and not dense(t)]
            whole = {id(t): t.detach().contiguous() for t in gaps}
            if whole:
                args = (_replaced(args[0], whole), *args[1:])
            work = original(group, *args, **kwargs)
            if work is not None:
                work.wait()
            for tensor in gaps:
                tensor.detach().copy_(whole[id(tensor)])
            return work

        return method

    def _syncing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _sync_buffers(ddp: Any, *args: Any, **kwargs: Any) -> Any:
            if ddp.will_sync_module_buffers():
                guards.before_write(tuple(ddp.module.buffers()), sys._getframe(1))
            return original(ddp, *args, **kwargs)

        return _sync_buffers

    def _first_forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _pre_forward(ddp: Any, *args: Any, **kwargs: Any) -> Any:
            if ddp not in self._synced:
                self._synced.add(ddp)
                distributed.make_equal(ddp)
            return original(ddp, *args, **kwargs)

        return _pre_forward

    def _watch_sharding(self) -> None:
        kind = getattr(sys.modules.get(FSDP), "FSDPParam", None)
        if kind is None:
            return
        original = kind.__init__

        def __init__(this: Any, parameter: Any, *args: Any, **kwargs: Any) -> None:
            original(this, parameter, *args, **kwargs)
            self._replaced[id(parameter)] = (parameter, this)

        self._patches.set(kind, "__init__", __init__)

    def _repoint(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            for index, parameter in enumerate(group["params"]):
                if id(parameter) in self._replaced:
                    group["params"][index] = self._replaced[id(parameter)][1].sharded_param


def _replaced(value: Any, whole: dict[int, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return whole.get(id(value), value)
    return [_replaced(item, whole) for item in value]
