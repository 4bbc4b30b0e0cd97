"""Watches checkpointed blocks: what they will be computed from again must still be what it was.

A block under `checkpoint` keeps its inputs instead of its values. Nothing is run for this sensor: the inputs are noted
when the block is called, and looked at when torch itself is about to compute the block again, or has refused to.
The other kind of checkpoint, the reentrant one, is a node of the graph with saved inputs like any other.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CellType, FrameType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from torchsan import compat
from torchsan.model.events import Line, Save, StaleSave
from torchsan.observe.clock import clock
from torchsan.observe.nodes import versions_in
from torchsan.observe.objects import is_a, is_tensor, tensors_of
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.sites import Site, site_of
from torchsan.observe.tensors import byte_range, is_plain, memory_of

if TYPE_CHECKING:
    from torchsan.observe.sensors.graph import GraphSensor

_getframe = sys._getframe
MAX_BLOCKS = 10_000


@dataclass(slots=True)
class Block:
    """One call of `checkpoint`: memory, version and bytes of each input, and the memory of the weights inside."""

    site: Site
    when: int
    inputs: list[tuple[int, int, int, int]] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)


class CheckpointSensor:
    def __init__(self, recorder: Recorder, graph: GraphSensor) -> None:
        self.recorder = recorder
        self.ledger = recorder.ledger
        self.stale = graph.stale
        graph.stale.elsewhere = self._refused
        self._blocks: dict[int, tuple[weakref.ref[Any], Block]] = {}

    def install(self) -> None:
        frame = compat.checkpoint_frame()
        if frame is None:
            return
        patches = self.recorder.patches
        patches.set(frame, "__init__", self._made(frame.__init__))
        patches.set(frame, "save_inputs", self._keeping(frame.save_inputs))

    def close(self) -> None:
        self._blocks.clear()

    # -- when the block is called -------------------------------------------------------------------

    def _made(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(frame: Any, recompute_fn: Any, *args: Any, **kwargs: Any) -> None:
            key = id(frame)

            def again(*inputs: Any, **more: Any) -> Any:
                self._before_again(key, _getframe(1))
                return recompute_fn(*inputs, **more)

            original(frame, again, *args, **kwargs)
            self._note(frame, recompute_fn, _getframe(1))

        return __init__

    def _keeping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def save_inputs(frame: Any, *args: Any) -> Any:
            self._inputs(frame, args)
            return original(frame, *args)

        return save_inputs

    @shield
    def _note(self, frame: Any, recompute: Any, caller: FrameType) -> None:
        if not self.recorder.active or self.recorder.paused or len(self._blocks) >= MAX_BLOCKS:
            return
        key = id(frame)
        block = Block(site_of(caller), clock.now(), weights=_weights(_closed_over(recompute, "fn")))
        self._blocks[key] = (weakref.ref(frame, lambda _: self._blocks.pop(key, None)), block)

    @shield
    def _inputs(self, frame: Any, args: tuple[Any, ...]) -> None:
        known = self._blocks.get(id(frame))
        if known is None:
            return
        for tensor in args:
            memory = memory_of(tensor) if is_plain(tensor) else None
            if memory is not None and not tensor.is_inference():
                known[1].inputs.append((memory, tensor._version, *byte_range(tensor)))

    # -- when it is about to be computed again ------------------------------------------------------

    @shield
    def _before_again(self, key: int, frame: FrameType) -> None:
        known = self._blocks.get(key)
        if known is None or not self.recorder.active or self.recorder.paused:
            return
        block = known[1]
        self.ledger.pull()
        for memory, _, start, end in block.inputs:
            writes = [w for w, _ in self.ledger.silent.get(memory, []) if w.before > block.when]
            writes = [w for w in writes if w.start < end and start < w.end]
            self._tell(block, memory, writes, [], frame)
        for memory in block.weights:
            writes = [w for w, _ in self.ledger.silent.get(memory, []) if w.before > block.when]
            steps = [s for s in self.ledger.steps if s.before > block.when and memory in s.memories]
            self._tell(block, memory, writes, steps, frame)

    def _refused(self, text: str, frame: FrameType) -> list[StaleSave]:
        """Torch refused an input that was overwritten in between; its words tell the versions."""
        expected, current = versions_in(text)
        if expected is None:
            return []
        for _, block in list(self._blocks.values()):
            for memory, version, _, _ in block.inputs:
                if version != expected:
                    continue
                writes = [w for w in self.ledger.writes.get(memory, []) if w.before > block.when]
                steps = [s for s in self.ledger.steps if s.before > block.when and memory in s.memories]
                if steps or any(w.version == current for w in writes):
                    later = [w for w in writes if w.version > version]
                    return [self._event(block, memory, later, steps, frame, version)]
        return []

    def _tell(self, block: Block, memory: int, writes: list[Any], steps: list[Any], frame: FrameType) -> None:
        if writes or steps:
            self.recorder.emit(self._event(block, memory, writes, steps, frame))

    def _event(
        self,
        block: Block,
        memory: int,
        writes: list[Any],
        steps: list[Any],
        frame: FrameType,
        version: int | None = None,
    ) -> StaleSave:
        save = Save("checkpoint", "input", Line(block.site.place, None), version)
        needed = self.recorder.backward or site_of(frame)
        return self.stale.event_of(memory, save, writes, steps, needed, frame, silent=version is None)


def _closed_over(function: Any, name: str) -> Any:
    """What a function closes over under a name."""
    if type(function) is not FunctionType or name not in function.__code__.co_freevars:
        return None
    cells: tuple[CellType, ...] = function.__closure__ or ()
    try:
        return cells[function.__code__.co_freevars.index(name)].cell_contents
    except ValueError:
        return None


def _weights(function: Any) -> list[int]:
    """Memory of the parameters that a block reads: its own, its owner's, or those that it closes over."""
    holders = [function]
    if type(function) is MethodType:
        holders = [function.__self__]
    elif type(function) is FunctionType:
        holders = [_closed_over(function, name) for name in function.__code__.co_freevars]
    modules = [holder for holder in holders if is_a(holder, torch.nn.Module)]
    found = [memory_of(t) for module in modules for _, t, kind in tensors_of(module) if kind == "parameter"]
    found += [memory_of(holder) for holder in holders if is_tensor(holder)]
    return [memory for memory in dict.fromkeys(found) if memory is not None]
