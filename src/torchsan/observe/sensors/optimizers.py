"""Watches optimizers: one `step()` is one event, however it writes (single tensors, foreach, fused)."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from torchsan import compat
from torchsan.observe.clock import clock
from torchsan.observe.ledger import Stepped
from torchsan.observe.objects import is_honest, module_of, parameters_in_turn
from torchsan.observe.recorder import Recorder
from torchsan.observe.steps import OptimizerStep
from torchsan.observe.tensors import is_plain, memory_of

MAX_OPTIMIZERS = 1_000


class OptimizerSensor:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._versions: dict[int, tuple[Any, int]] = {}
        self._names: dict[int, tuple[weakref.ref[Any], str, bool]] = {}
        self._memories: dict[int, tuple[weakref.ref[Any], int, frozenset[int]]] = {}

    def install(self) -> None:
        self.recorder.steps.before.append(self._noted)
        self.recorder.steps.after.append(self._stepped)

    def close(self) -> None:
        pass

    def _noted(self, step: OptimizerStep) -> None:
        first = None
        for parameter in parameters_in_turn(step.optimizer):
            if is_plain(parameter) and parameter.grad is not None:
                first = parameter
                break
        if first is not None:
            self._versions[id(step.optimizer)] = (first, first._version)
            if self.recorder.aliases is not None:
                self.recorder.aliases.before_step(step)

    def _stepped(self, step: OptimizerStep) -> None:
        optimizer = step.optimizer
        noted = self._versions.pop(id(optimizer), None)
        if noted is None:
            return
        parameter, version = noted
        reference, name, logged = self._named(optimizer)
        stepped = Stepped(
            clock.now(),
            step.site,
            reference,
            name,
            self._memories_of(optimizer, step.parameters),
            parameter._version == version and _has_effect(parameter),
            self.recorder.ledger.backwards,
            logged,
            compat.autocast_caches(parameter),
        )
        self.recorder.ledger.add_step(stepped)
        if self.recorder.aliases is not None:
            self.recorder.aliases.after_step(step, stepped)

    def _named(self, optimizer: Any) -> tuple[weakref.ref[Any], str, bool]:
        """A reference to an optimizer, what its step is called, and whether its writes are seen one by one."""
        known = self._names.get(id(optimizer))
        if known is None or known[0]() is not optimizer:
            if len(self._names) > MAX_OPTIMIZERS:
                self._names.clear()
            logged = not module_of(optimizer).startswith("torch.optim")
            known = (weakref.ref(optimizer), f"{type(optimizer).__name__}.step", logged)
            self._names[id(optimizer)] = known
        return known

    def _memories_of(self, optimizer: Any, stepped: list[torch.Tensor]) -> frozenset[int]:
        """Memories of the parameters; computed again only when their number changes or data was replaced."""
        try:
            stamp = hash(tuple([p.data_ptr() for p in stepped if type(p) is torch.nn.Parameter or is_honest(type(p))]))
        except RuntimeError:  # some have no memory of their own
            stamp = hash(tuple([p.data_ptr() for p in stepped if is_plain(p)]))
        known = self._memories.get(id(optimizer))
        if known is not None and known[0]() is optimizer and known[1] == stamp:
            return known[2]
        plain = [p for p in stepped if type(p) is torch.nn.Parameter or is_honest(type(p))]
        memories = frozenset(m for m in map(memory_of, plain) if m is not None)
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
