"""Watches optimizers: one `step()` is one event, however it writes (single tensors, foreach, fused)."""

from __future__ import annotations

import sys
import weakref
from types import FrameType
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from torchsan import compat, compat_compile
from torchsan.observe.clock import clock
from torchsan.observe.ledger import Stepped
from torchsan.observe.objects import is_honest, module_of, parameters_of
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.sites import site_of
from torchsan.observe.tensors import is_plain, memory_of

MAX_OPTIMIZERS = 1_000


class OptimizerSensor:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._versions: dict[int, tuple[Any, int]] = {}
        self._memories: dict[int, tuple[weakref.ref[Any], int, frozenset[int]]] = {}
        self._handles: list[Any] = []

    def install(self) -> None:
        self.resume()

    def resume(self) -> None:
        if self._handles:
            return
        self._handles = [
            torch_optimizer.register_optimizer_step_pre_hook(self._before),
            torch_optimizer.register_optimizer_step_post_hook(self._after),
        ]

    def close(self) -> None:
        self.pause()

    def pause(self) -> None:
        """Dynamo traces through these hooks, and its guards look at them: out while it does."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        held = compat_compile.hold()  # a compiled step would have what we make here compiled as well
        try:
            self._noted(optimizer, sys._getframe(1))
        finally:
            compat_compile.release(held)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        held = compat_compile.hold()
        try:
            self._stepped(optimizer, sys._getframe(1))
        finally:
            compat_compile.release(held)

    @shield
    def _noted(self, optimizer: Any, frame: FrameType) -> None:
        if not self.recorder.active or self.recorder.paused:
            return
        first = next((p for p in parameters_of(optimizer) if is_plain(p) and p.grad is not None), None)
        if first is not None:
            self._versions[id(optimizer)] = (first, first._version)
            if self.recorder.aliases is not None:
                self.recorder.aliases.before_step(optimizer, frame)

    @shield
    def _stepped(self, optimizer: Any, frame: FrameType) -> None:
        noted = self._versions.pop(id(optimizer), None)
        if noted is None:
            return
        parameter, version = noted
        site = site_of(frame)
        step = Stepped(
            before=clock.now(),
            site=site,
            optimizer=weakref.ref(optimizer),
            name=f"{type(optimizer).__name__}.step",
            memories=self._memories_of(optimizer),
            silent=parameter._version == version and _has_effect(parameter),
            passes=self.recorder.ledger.backwards,
            autocast=compat.autocast_caches(parameter),
            logged=not module_of(optimizer).startswith("torch.optim"),
        )
        self.recorder.ledger.add_step(step)
        if self.recorder.aliases is not None:
            self.recorder.aliases.after_step(optimizer, step, frame)

    def _memories_of(self, optimizer: Any) -> frozenset[int]:
        """Memories of the parameters; computed again only when their number changes or data was replaced."""
        parameters = [p for p in parameters_of(optimizer) if type(p) is torch.nn.Parameter or is_honest(type(p))]
        stamp = hash(tuple([p.data_ptr() for p in parameters if p.layout is torch.strided]))
        known = self._memories.get(id(optimizer))
        if known is not None and known[0]() is optimizer and known[1] == stamp:
            return known[2]
        memories = frozenset(m for m in map(memory_of, parameters) if m is not None)
        if len(self._memories) > MAX_OPTIMIZERS:
            self._memories.clear()
        self._memories[id(optimizer)] = (weakref.ref(optimizer), stamp, memories)
        return memories


def _has_effect(parameter: torch.Tensor) -> bool:
    """Whether a step by this gradient changes anything; off the CPU it is taken to: reading makes a device wait."""
    gradient = parameter.grad
    if gradient is None or not is_plain(gradient):
        return False
    if not gradient.is_cpu:
        return True
    with compat.unseen():
        return bool(gradient.count_nonzero())
