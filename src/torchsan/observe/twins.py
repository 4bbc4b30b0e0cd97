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
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import frame_place, user_frames
from torchsan.observe.tensors import memory_of

# Names under which people keep something that must not move while the model trains.
KEPT = re.compile(
    r"(^|_)(target|teacher|ema|frozen|anchor|old|prev|previous|best|backup|snapshot|initial|init|start|orig|original"
    r"|reference|ref|before|saved|momentum|slow|global)(_|$|s$)"
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
            owner = names.get("self")
            self._twin_modules(names, step, holder, "")
            if owner is not None and not isinstance(owner, torch.nn.Module):
                self._twin_modules(getattr(owner, "__dict__", {}), step, holder, "self.")
            self._live_snapshots(names, step, holder, looked)

    # -- modules ------------------------------------------------------------------------------------

    def _twin_modules(self, names: dict[str, Any], step: Stepped, holder: FrameType, prefix: str) -> None:
        found: dict[int, list[str]] = {}
        for name, value in list(names.items()):
            if isinstance(value, torch.nn.Module):
                found.setdefault(id(value), []).append(name)
        for aliases in found.values():
            kept = [name for name in aliases if sounds_kept(name)]
            live = [name for name in aliases if not sounds_kept(name)]
            if not kept or not live or not _trained(names[kept[0]], step):
                continue
            self._tell("module", f"{prefix}{kept[0]}", f"{prefix}{live[0]}", step, holder)

    # -- lists and dictionaries of parameters -------------------------------------------------------

    def _live_snapshots(self, names: dict[str, Any], step: Stepped, holder: FrameType, looked: int) -> None:
        for name, value in names.items():
            if not sounds_kept(name) or not isinstance(value, (list, tuple, dict)) or not value:
                continue
            tensors = list(value.values()) if isinstance(value, dict) else list(value)
            if not all(isinstance(t, torch.Tensor) for t in tensors):
                continue
            if not all(memory_of(t) in step.memories for t in tensors if t.is_floating_point()):
                continue
            # Held across one whole step already, so that the step that just ran has moved it.
            key = (id(value), name)
            self._held[key] = self._held.get(key, 0) + 1
            if self._held[key] >= 2 and self._read_after(name, step, holder):
                self._tell("difference", name, "the parameters", step, holder)

    def _read_after(self, name: str, step: Stepped, holder: FrameType) -> bool:
        """Is the name read in the loop that steps, or below it?"""
        at = frame_place(holder)
        file = syntax.file_of(at.path)
        node = file.at(at) if file else None
        if file is None or node is None:
            return False
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
        taken = self._bound(kept, holder)
        self.recorder.emit(AliasedSnapshot(Memory(kept, "parameter"), taken, write, None, form, live))

    def _bound(self, name: str, holder: FrameType) -> Line | None:
        """The statement that bound the name: in this function, or anywhere in the class for an attribute."""
        at = frame_place(holder)
        file = syntax.file_of(at.path)
        node = file.at(at) if file else None
        if file is None:
            return None
        if not name.startswith("self."):
            found = syntax.binding(file, file.function(node), name, at.line) if node is not None else None
            return Line(file.place(found[0], at)) if found else None
        for statement in ast.walk(file.tree):
            if isinstance(statement, ast.Assign) and any(syntax.text_of(t) == name for t in statement.targets):
                return Line(file.place(statement, at))
        return None


def _trained(module: torch.nn.Module, step: Stepped) -> bool:
    parameters = [p for p in module.parameters() if p.requires_grad]
    return bool(parameters) and all(memory_of(p) in step.memories for p in parameters)
