"""Watches optimizers: one `step()` is one event, however it writes (single tensors, foreach, fused)."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from torchsan import compat
from torchsan.observe.ledger import Stepped
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.sites import site_of
from torchsan.observe.tensors import memory_of


class OptimizerSensor:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._versions: dict[int, tuple[Any, int]] = {}
        self._memories: weakref.WeakKeyDictionary[Any, tuple[int, frozenset[int]]] = weakref.WeakKeyDictionary()
        self._handles: list[Any] = []

    def install(self) -> None:
        self._handles = [
            torch_optimizer.register_optimizer_step_pre_hook(self._before),
            torch_optimizer.register_optimizer_step_post_hook(self._after),
        ]

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @shield
    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self.recorder.active or self.recorder.paused:
            return
        first = next((p for g in optimizer.param_groups for p in g["params"] if p.grad is not None), None)
        if first is not None:
            self._versions[id(optimizer)] = (first, first._version)
            if self.recorder.aliases is not None:
                self.recorder.aliases.before_step(optimizer, sys._getframe(1))

    @shield
    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        noted = self._versions.pop(id(optimizer), None)
        if noted is None:
            return
        parameter, version = noted
        frame = sys._getframe(1)
        site = site_of(frame)
        step = Stepped(
            before=compat.next_sequence(),
            site=site,
            optimizer=weakref.ref(optimizer),
            name=f"{type(optimizer).__name__}.step",
            memories=self._memories_of(optimizer),
            silent=parameter._version == version and _has_effect(parameter),
            passes=self.recorder.ledger.backwards,
            autocast=compat.autocast_caches(parameter),
            logged=not type(optimizer).__module__.startswith("torch.optim"),
        )
        self.recorder.ledger.add_step(step)
        if self.recorder.aliases is not None:
            self.recorder.aliases.after_step(optimizer, step, frame)

    def _memories_of(self, optimizer: Any) -> frozenset[int]:
        """Memories of the parameters; computed again only when their number changes or data was replaced."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        stamp = hash(tuple(p.data_ptr() for p in parameters if p.layout is torch.strided))
        known = self._memories.get(optimizer)
        if known is not None and known[0] == stamp:
            return known[1]
        memories = frozenset(m for m in map(memory_of, parameters) if m is not None)
        self._memories[optimizer] = (stamp, memories)
        return memories


def _has_effect(parameter: torch.Tensor) -> bool:
    gradient = parameter.grad
    return gradient is not None and not gradient.is_sparse and bool(gradient.count_nonzero())
