"""Watches `state_dict()`: a snapshot that is used after the weights it shares memory with have moved on."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from torchsan.model.events import AliasedSnapshot, Line, Memory, Sure, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.clock import clock
from torchsan.observe.evidence.momenta import Momenta, flat_state
from torchsan.observe.ledger import Written
from torchsan.observe.objects import attributes_of, entries_of, is_a, is_tensor, tensors_of
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.sites import USER, Site, kind_of, site_of
from torchsan.observe.steps import OptimizerStep
from torchsan.observe.tensors import is_plain, memory_of

MAX_SNAPSHOTS = 256


@dataclass(slots=True)
class Snapshot:
    """A state dictionary as it was handed out, known by its first tensor, which a shallow copy of it holds, too."""

    first: weakref.ref[torch.Tensor]
    site: Site
    # Memory and version of each tensor, and the number of the last step before.
    tensors: dict[str, tuple[int, int]]
    name: str
    steps: int
    when: int
    # Taken again by the same line after the weights had moved: whoever does that believes that it makes a difference.
    retaken: bool = False


class SnapshotSensor:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._taken: dict[int, Snapshot] = {}
        # The number of the last step when each line last took the state of each memory.
        self._takes: dict[tuple[Site, int], int] = {}
        self._momenta = Momenta(recorder)

    def install(self) -> None:
        patches = self.recorder.patches
        module = torch.nn.Module
        patches.set(module, "state_dict", self._state_dict(module.state_dict))
        patches.set(module, "load_state_dict", self._load(module.load_state_dict))
        optimizer = torch.optim.Optimizer
        patches.set(optimizer, "state_dict", self._state_of_optimizer(optimizer.state_dict))
        patches.set(optimizer, "load_state_dict", self._load_optimizer(optimizer.load_state_dict))
        # One function under both names, as it was: whoever pickles it is led from the one to the other.
        save = self._save(torch.save)
        for owner in (torch, torch.serialization):
            patches.set(owner, "save", save)
        self.recorder.steps.after.append(self._stepped)

    def close(self) -> None:
        self._taken.clear()
        self._takes.clear()

    # -- wrappers -----------------------------------------------------------------------------------

    def _state_dict(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def state_dict(module: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(module, *args, **kwargs)
            frame = sys._getframe(1)
            if not args and "destination" not in kwargs and kind_of(frame.f_code) == USER:
                self._remember(result, frame)
            return result

        state_dict.__doc__ = original.__doc__
        return state_dict

    def _load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load_state_dict(module: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            self._loading(module, state_dict, sys._getframe(1))
            return original(module, state_dict, *args, **kwargs)

        load_state_dict.__doc__ = original.__doc__
        return load_state_dict

    def _state_of_optimizer(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def state_dict(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(optimizer, *args, **kwargs)
            frame = sys._getframe(1)
            if kind_of(frame.f_code) == USER:
                self._remember(flat_state(result), frame)
            return result

        state_dict.__doc__ = original.__doc__
        return state_dict

    def _load_optimizer(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load_state_dict(optimizer: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            self._restoring(optimizer, state_dict, frame)
            result = original(optimizer, state_dict, *args, **kwargs)
            self._restored(optimizer, state_dict, frame)
            return result

        load_state_dict.__doc__ = original.__doc__
        return load_state_dict

    def _save(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
            self._saving(obj, sys._getframe(1))
            for listener in self.recorder.on_save:
                listener()
            return original(obj, *args, **kwargs)

        return save

    # -- judging ------------------------------------------------------------------------------------

    @shield
    def _remember(self, state: Any, frame: FrameType) -> None:
        if not self.recorder.active or self.recorder.paused:
            return
        for key in [k for k, s in self._taken.items() if s.first() is None]:
            del self._taken[key]
        if len(self._taken) >= MAX_SNAPSHOTS:
            return
        first = _first_tensor(state)
        if first is None:
            return
        site = site_of(frame)
        tensors = {k: (memory_of(t) or 0, t._version) for k, t in entries_of(state) if is_plain(t)}
        file = syntax.file_of(site.place.path)
        node = file.at(site.place) if file else None
        names = syntax.names_given(node, file) if file and node is not None else []
        steps = self.recorder.ledger.steps_made
        take = (site, memory_of(first) or 0)
        retaken = take in self._takes and self._takes[take] < steps
        self._takes[take] = steps
        name = names[0] if names else ""
        self._taken[id(first)] = Snapshot(weakref.ref(first), site, tensors, name, steps, clock.now(), retaken)

    def _moved(self, state: dict[str, Any]) -> Snapshot | None:
        """The snapshot that this dictionary is or was filled from, if its tensors have been written since."""
        first = _first_tensor(state)
        snapshot = self._taken.get(id(first))
        if first is None or snapshot is None or snapshot.first() is not first:
            return None
        for key, tensor in entries_of(state):
            if not is_plain(tensor):
                continue
            if memory_of(tensor) == snapshot.tensors.get(key, (0, 0))[0] and self._trained_since(snapshot, key, tensor):
                return snapshot
        return None

    def _trained_since(self, snapshot: Snapshot, key: str, tensor: torch.Tensor) -> bool:
        """Has an optimizer or the program itself written this memory? To load a model's weights does not count."""
        ledger, (memory, version) = self.recorder.ledger, snapshot.tensors[key]
        if any(step.number > snapshot.steps and memory in step.memories for step in ledger.steps):
            return True
        later = [w for w in ledger.writes_of(memory) if w.version > version and w.before >= snapshot.when]
        if tensor._version == version:
            # While no node is made the numbers stand still: it may be a write of whoever had this address before.
            later = [w for w in later if w.before > snapshot.when]
        return any(not _is_loading(w) for w in later)

    @shield
    def _loading(self, module: Any, state: Any, frame: FrameType) -> None:
        if not self.recorder.active or self.recorder.paused or not is_a(state, dict):
            return
        snapshot = self._moved(state)
        if snapshot is None:
            return
        own = {memory_of(t) for _, t, _ in tensors_of(module)}
        onto_itself = any(is_tensor(t) and memory_of(t) in own for _, t in entries_of(state))
        # Written by a line of the program it may have been through the dictionary itself, and on purpose.
        sure = onto_itself or (snapshot.retaken and self._stepped_since(state, snapshot))
        self._tell(snapshot, state, frame, "proved" if sure else "possible")

    def _stepped_since(self, state: dict[str, Any], snapshot: Snapshot) -> bool:
        memories = {memory_of(t) for _, t in entries_of(state) if is_tensor(t)}
        return any(s.number > snapshot.steps and s.memories & memories for s in self.recorder.ledger.steps)

    @shield
    def _restoring(self, optimizer: Any, state: Any, frame: FrameType) -> None:
        """An optimizer gets its own momenta back: they have gone on changing."""
        if not self.recorder.active or self.recorder.paused or not is_a(state, dict):
            return
        flat = flat_state(state)
        first = _first_tensor(flat)
        snapshot = self._taken.get(id(first))
        if first is None or snapshot is None or snapshot.first() is not first:
            return
        own = {memory_of(t) for t in flat_state(attributes_of(optimizer)).values()}
        moved = [t for k, t in flat.items() if is_plain(t) and snapshot.tensors.get(k, (0, t._version))[1] < t._version]
        if any(memory_of(tensor) in own for tensor in moved):
            self._tell(snapshot, flat, frame, "proved", "optimizer")

    @shield
    def _restored(self, optimizer: Any, state: Any, frame: FrameType) -> None:
        if self.recorder.active and not self.recorder.paused and is_a(state, dict):
            self._momenta.loaded(optimizer, flat_state(state), frame)

    def _stepped(self, step: OptimizerStep) -> None:
        self._momenta.stepped(step)

    @shield
    def _saving(self, obj: Any, frame: FrameType) -> None:
        if not self.recorder.active or self.recorder.paused:
            return
        for state in [obj, *(value for _, value in entries_of(obj))]:
            snapshot = self._moved(state) if is_a(state, dict) else None
            if snapshot is not None:
                self._tell(snapshot, state, frame, "proved" if snapshot.retaken else "possible")

    def _tell(self, snapshot: Snapshot, state: Any, frame: FrameType, certainty: Sure, of: str = "") -> None:
        used = site_of(frame)
        if self.recorder.aliases is not None:
            self.recorder.aliases.told.add((used.code, used.lasti))
        memories = {memory_of(t) for _, t in entries_of(state) if is_tensor(t)}
        steps = reversed(self.recorder.ledger.steps)
        step = next((s for s in steps if s.memories & memories or (of and s.number > snapshot.steps)), None)
        write = Write(step.name, "optimizer", Line(step.site.place)) if step is not None else None
        taken = Line(snapshot.site.place)
        name = snapshot.name or "state_dict()"
        line = Line(used.place)
        self.recorder.emit(AliasedSnapshot(Memory(name), taken, write, line, "state_dict", of, certainty=certainty))


def _first_tensor(state: dict[Any, Any]) -> torch.Tensor | None:
    return next((value for _, value in entries_of(state) if is_tensor(value)), None)


def _is_loading(write: Written) -> bool:
    return write.site.library is not None and write.site.library[0].co_name == "_load_from_state_dict"
