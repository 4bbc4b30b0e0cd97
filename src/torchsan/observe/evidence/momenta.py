"""Two optimizers that step with one state: `load_state_dict` takes the tensors that it is given, and copies none."""

from __future__ import annotations

import ast
import weakref
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torchsan.model.events import AliasedSnapshot, Line, Memory, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.objects import attributes_of, entries_of, is_a, is_tensor
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import Site, site_of
from torchsan.observe.steps import OptimizerStep
from torchsan.observe.tensors import is_plain, memory_of
from torchsan.observe.writing import worth_a_look

MAX_LOADED = 256


@dataclass(slots=True)
class _Loaded:
    """An optimizer that was given somebody's state."""

    optimizer: weakref.ref[Any]
    site: Site
    memories: frozenset[int]
    steps: int = 0
    looks: int = 0


class Momenta:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._loaded: dict[int, _Loaded] = {}

    def loaded(self, optimizer: Any, given: dict[str, Any], frame: FrameType) -> None:
        """After the call: which of the tensors that it was given has it kept as they are?"""
        own = {memory_of(t) for t in flat_state(attributes_of(optimizer)).values() if is_plain(t)}
        shared = frozenset(m for t in given.values() if (m := memory_of(t)) in own and m is not None)
        self._loaded.pop(id(optimizer), None)
        if shared and len(self._loaded) < MAX_LOADED:
            self._loaded[id(optimizer)] = _Loaded(weakref.ref(optimizer), site_of(frame), shared)

    def stepped(self, step: OptimizerStep) -> None:
        if not self._loaded:
            return
        own = self._loaded.get(id(step.optimizer))
        if own is not None and own.optimizer() is step.optimizer:
            own.steps += 1
        for key, one in list(self._loaded.items()):
            if one.optimizer() is None:
                del self._loaded[key]
            elif one.optimizer() is not step.optimizer and one.steps:
                one.looks += 1
                if worth_a_look(one.looks) and self._is_shared(one, step.optimizer):
                    del self._loaded[key]
                    self._tell(one, step)

    def _is_shared(self, one: _Loaded, other: Any) -> bool:
        theirs, mine = attributes_of(other), attributes_of(one.optimizer())
        # An optimizer around another one has the other's state for its own.
        if theirs.get("state") is mine.get("state") or _parameters(theirs) & _parameters(mine):
            return False
        return any(memory_of(t) in one.memories for t in flat_state(theirs).values() if is_plain(t))

    def _tell(self, one: _Loaded, step: OptimizerStep) -> None:
        file = syntax.file_of(one.site.place.path)
        node = file.at(one.site.place) if file else None
        name, other = "", "another optimizer"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            name, other = syntax.text_of(node.func.value), syntax.text_of(node.args[0])
        made = Line(site_of(step.frame).place)
        write = Write(f"{type(step.optimizer).__name__}.step", "optimizer", made)
        self.recorder.emit(AliasedSnapshot(Memory(name), Line(one.site.place), write, None, "momenta", other))


def flat_state(state: Any) -> dict[str, Any]:
    """The tensors that an optimizer keeps for its parameters, under one name each."""
    found: dict[str, Any] = {}
    held = dict(entries_of(state)).get("state")
    for number, kept in enumerate(list(dict.values(held)) if is_a(held, dict) else []):
        found.update((f"{number}.{name}", value) for name, value in entries_of(kept) if is_tensor(value))
    return found


def _parameters(attributes: dict[str, Any]) -> set[int]:
    held = attributes.get("state")
    return {id(parameter) for parameter in list(dict.keys(held))} if is_a(held, dict) else set()
