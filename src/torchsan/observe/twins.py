"""Copies that are not: a target network that is the trained network, an anchor that moves with the weights."""

from __future__ import annotations

import ast
import re
from types import FrameType
from typing import Any

import torch

from torchsan.model.events import AliasedSnapshot, Line, Memory, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.ledger import Stepped
from torchsan.observe.names import local_names
from torchsan.observe.objects import attributes_of, is_a, items_of, module_of, tensors_of
from torchsan.observe.recorder import Recorder
from torchsan.observe.refusals import whole_statement
from torchsan.observe.sites import frame_place, user_frames
from torchsan.observe.tensors import is_plain, memory_of

# Names under which people keep something that must not move while the model trains.
KEPT = re.compile(
    r"(^|_)(target|targ|teacher|ema|frozen|anchor|old|prev|previous|best|backup|snapshot|initial|init|start|orig"
    r"|original|reference|ref|before|saved|momentum|slow|global|shadow|averaged?|avg|swa|copy|copies|checkpoint|ckpt"
    r"|prior|last|fixed|theta0|w0)(_|$|s$)"
)
LOOKS = 3


def sounds_kept(name: str) -> bool:
    return KEPT.search(name.lower()) is not None


class TwinFinder:
    """At the first few steps of each optimizer, looks for names that promise a copy and hold the weights."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._looked: dict[int, int] = {}
        self._held: dict[tuple[int, str], int] = {}

    def stepped(self, optimizer: Any, step: Stepped, frame: FrameType) -> None:
        looked = self._looked.get(id(optimizer), 0)
        if looked >= LOOKS or not step.memories:
            return
        self._looked[id(optimizer)] = looked + 1
        for holder in user_frames(frame, 4):
            names = local_names(holder)
            self._twin_modules(names, step, holder, "")
            self._live_snapshots(names, step, holder, "")
            for name, value in list(names.items()):
                attributes = plain_attributes(value)
                if attributes:
                    self._twin_modules(attributes, step, holder, f"{name}.")
                    self._live_snapshots(attributes, step, holder, f"{name}.")

    # -- modules ------------------------------------------------------------------------------------

    def _twin_modules(self, names: dict[str, Any], step: Stepped, holder: FrameType, prefix: str) -> None:
        """Modules of the same parameters under two names, one of which promises a copy."""
        found: dict[object, list[str]] = {}
        for name, value in list(names.items()):
            if is_a(value, torch.nn.Module):
                memories = frozenset(memory_of(p) for _, p, kind in tensors_of(value) if kind == "parameter")
                if memories and memories <= step.memories:
                    found.setdefault(memories, []).append(name)
        for aliases in found.values():
            kept = [name for name in aliases if sounds_kept(name)]
            live = [name for name in aliases if not sounds_kept(name)]
            if kept and live:
                form = "module" if names[kept[0]] is names[live[0]] else "memory"
                self._tell(form, f"{prefix}{kept[0]}", f"{prefix}{live[0]}", step, holder)

    # -- lists and dictionaries of parameters -------------------------------------------------------

    def _live_snapshots(self, names: dict[str, Any], step: Stepped, holder: FrameType, prefix: str) -> None:
        for name, value in list(names.items()):
            tensors = [item for _, item in items_of(value)] if sounds_kept(name) else []
            if not tensors or "_metadata" in attributes_of(value):
                continue  # a state dictionary: the snapshot sensor tells when it is used
            if not all(is_plain(t) for t in tensors):
                continue
            if not all(memory_of(t) in step.memories for t in tensors if t.is_floating_point()):
                continue
            # Held across one whole step already, so that the step that just ran has moved it.
            key = (id(value), name)
            self._held[key] = self._held.get(key, 0) + 1
            if self._held[key] >= 2 and self._read_after(prefix + name, step, holder):
                self._tell("difference", prefix + name, "the parameters", step, holder)

    def _read_after(self, name: str, step: Stepped, holder: FrameType) -> bool:
        """Is the name read in the loop that steps, or below it?"""
        at = frame_place(holder)
        file = syntax.file_of(at.path)
        node = file.at(at) if file else None
        if file is None or node is None:
            return False
        if "." in name:
            return _attribute_read(file, name.rpartition(".")[2])
        function = file.function(node)
        loop = next((n for n in file.up(node) if isinstance(n, (ast.For, ast.While))), None)
        for read in ast.walk(function):
            if isinstance(read, ast.Name) and read.id == name and isinstance(read.ctx, ast.Load):
                in_loop = loop is not None and loop.lineno <= read.lineno <= (loop.end_lineno or 0)
                if in_loop or read.lineno > at.line:
                    return True
        return False

    def _tell(self, form: Any, kept: str, live: str, step: Stepped, holder: FrameType) -> None:
        write = Write(step.name, "optimizer", Line(step.site.place))
        taken = (self._shared_at(step) if form == "memory" else None) or self._bound(kept, holder)
        self.recorder.emit(AliasedSnapshot(Memory(kept, "parameter"), taken, write, None, form, live))

    def _shared_at(self, step: Stepped) -> Line | None:
        """The `a.data = b.data` that made two parameters one memory."""
        for memory in step.memories:
            for write, _ in self.recorder.ledger.silent.get(memory, []):
                if write.kind == "set_data":
                    return Line(whole_statement(write.site.place))
        return None

    def _bound(self, name: str, holder: FrameType) -> Line | None:
        """The statement that bound the name: in this function, or anywhere in the class for an attribute."""
        at = frame_place(holder)
        file = syntax.file_of(at.path)
        node = file.at(at) if file else None
        if file is None:
            return None
        if "." not in name:
            found = syntax.binding(file, file.function(node), name, at.line) if node is not None else None
            return Line(file.place(found[0], at)) if found else None
        for statement in ast.walk(file.tree):
            if isinstance(statement, ast.Assign) and any(
                isinstance(t, ast.Attribute) and t.attr == name.rpartition(".")[2] for t in statement.targets
            ):
                return Line(file.place(statement, at))
        return None


def plain_attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object of the user's own making; nothing for modules, tensors and builtins."""
    if any(is_a(value, kind) for kind in (torch.nn.Module, torch.Tensor, torch.optim.Optimizer, type)):
        return {}
    if module_of(value).partition(".")[0] in ("builtins", "torch", "numpy", "collections"):
        return {}
    return attributes_of(value, 200)


def _attribute_read(file: syntax.File, attribute: str) -> bool:
    """Is the attribute read anywhere but in a constructor?"""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Load):
            function = file.function(node)
            if getattr(function, "name", "") != "__init__":
                return True
    return False
