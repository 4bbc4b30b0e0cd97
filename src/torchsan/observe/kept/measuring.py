"""Measures what each backward pass finds kept, within a share of the run's time."""

from __future__ import annotations

import gc
from types import FrameType
from typing import Any

import torch

from torchsan.model.memory import KeptRow, Memory, StepMemory
from torchsan.observe.kept.owners import Owners
from torchsan.observe.kept.saved import Kept, kept_by
from torchsan.observe.objects import is_tensor
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.tensors import memory_of
from torchsan.observe.timing import Share

# Looks that every run has, and the share of its time that looking may take beyond them.
ALLOWANCE, SHARE = 1.0, 0.03
MAX_STEPS = 2_000


class MemorySensor:
    """At the start of a backward the graph is whole: what it keeps then is what the step needed memory for."""

    def __init__(self, recorder: Recorder, memory: Memory) -> None:
        self.recorder = recorder
        self.memory = memory
        self.owners = Owners()
        self.share = Share(ALLOWANCE, SHARE)
        self._best = -1

    def install(self) -> None:
        self.owners.install()
        self.recorder.owners = self.owners
        self.recorder.before_backward.append(self._backward)

    def close(self) -> None:
        self.owners.close()
        left = self.memory.passes - len(self.memory.steps)
        if left > 0:
            self.recorder.report.notes.append(
                f"memory: {len(self.memory.steps)} of {self.memory.passes} backward passes were measured; "
                f"looking at all of them would have taken more than {SHARE:.0%} of the run"
            )

    @shield
    def _backward(self, roots: list[Any], frame: FrameType) -> None:
        self.memory.passes += 1
        if len(self.memory.steps) >= MAX_STEPS or not self.share.allows():
            return
        with self.share.spending():
            self._measure(roots)

    def _measure(self, roots: list[Any]) -> None:
        kept, nodes = kept_by(roots)
        buffers = self.owners.buffers()
        graph = [one for one in kept if not one.leaf and one.memory not in buffers]
        total = sum(one.storage_bytes for one in graph)
        held = live = 0
        if total > self._best:
            self._best = total
            held, live = _bytes_alive()
            self.memory.kept = _rows(graph)
            self.memory.kept_anyway_bytes = sum(one.storage_bytes for one in kept) - total
        self.memory.steps.append(StepMemory(self.memory.passes, total, nodes, held, live))


def _bytes_alive() -> tuple[int, int]:
    """Bytes of leaves with their gradients, and of every tensor that Python knows; each memory once."""
    leaves: dict[int, int] = {}
    every: dict[int, int] = {}
    for value in gc.get_objects():
        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            _add(every, value)
            if value.requires_grad and value.is_leaf:
                _add(leaves, value)
                if is_tensor(value.grad):
                    _add(leaves, value.grad)
    return sum(leaves.values()), sum({**every, **leaves}.values())


def _add(found: dict[int, int], tensor: torch.Tensor) -> None:
    memory = memory_of(tensor)
    if memory is not None:
        found[memory] = torch._C.TensorBase.untyped_storage(tensor).nbytes()


def _rows(kept: list[Kept]) -> list[KeptRow]:
    """One row for each line, module and saved variable, the largest first."""
    sums: dict[tuple[str, int, str, str], list[int]] = {}
    for one in kept:
        place = one.site.place if one.site is not None else None
        what = f"{one.op}: packed by hooks" if one.packed else f"{one.op}: {_plain(one.what)}"
        key = (place.path if place else "", place.line if place else 0, one.module, what)
        total = sums.setdefault(key, [0, 0])
        total[0] += one.storage_bytes
        total[1] += 1
    rows = [KeptRow(*key, bytes=size, values=count) for key, (size, count) in sums.items()]
    return sorted(rows, key=lambda row: (-row.bytes, row.path, row.line))


def _plain(what: str) -> str:
    return {"self": "its input", "result": "its result", "tensors": "saved by its forward"}.get(what, f"`{what}`")
