"""Parameters that were given somebody's memory, trained in it, and are given it again: it is not what it was."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from torchsan import compat
from torchsan.model.events import AliasedSnapshot, Line, Memory, Write
from torchsan.observe.holders.census import take_census
from torchsan.observe.holders.extents import extent_of
from torchsan.observe.holders.takings import Takings
from torchsan.observe.objects import is_a
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import Site, site_of

MAX_PARAMETERS, MAX_MEMORIES = 4_096, 16


@dataclass(slots=True)
class _Lent:
    """Memory that a parameter was given, when, and by which line. It lives on where somebody else holds it."""

    storage: compat.WeakStorage
    steps: int
    site: Site


@dataclass(slots=True)
class _Known:
    parameter: weakref.ref[torch.Tensor]
    # What it had of its own; who puts that back after a look at other weights knows that it was trained.
    had: set[int] = field(default_factory=set)
    lent: dict[int, _Lent] = field(default_factory=dict)


class PutBack:
    def __init__(self, recorder: Recorder, takings: Takings) -> None:
        self.recorder = recorder
        self.takings = takings
        self._known: dict[int, _Known] = {}
        self._told: set[tuple[Site, Site]] = set()

    def given(self, tensor: torch.Tensor, value: Any, memory: int, before: int | None, frame: FrameType) -> None:
        """A parameter that had one memory was given another by `.data =`."""
        known = self._known.get(id(tensor))
        if known is None or known.parameter() is not tensor:
            if len(self._known) >= MAX_PARAMETERS:
                self._known.clear()
            known = self._known[id(tensor)] = _Known(weakref.ref(tensor))
        if before is not None and before not in known.lent:
            known.had.add(before)
        lent = known.lent.get(memory)
        if lent is not None and lent.storage.get() is None:
            del known.lent[memory]
            lent = None
        if lent is not None:
            self._again(tensor, value, memory, lent, frame)
        elif memory not in known.had and len(known.lent) < MAX_MEMORIES:
            known.lent[memory] = _Lent(compat.WeakStorage(value), self.recorder.ledger.steps_made, site_of(frame))
            self.takings.note(take_census(frame, around=(value,)))
        elif len(known.lent) >= MAX_MEMORIES:
            known.lent = {m: one for m, one in known.lent.items() if one.storage.get() is not None}

    def _again(self, tensor: torch.Tensor, value: Any, memory: int, lent: _Lent, frame: FrameType) -> None:
        steps = [s for s in self.recorder.ledger.steps if s.number > lent.steps and memory in s.memories]
        site, extent = site_of(frame), extent_of(value)
        if not steps or extent is None or (lent.site, site) in self._told:
            return
        for holding in take_census(frame, around=(value,)).holdings:
            if is_a(holding.value, torch.nn.Parameter) or not holding.extent.covers(extent):
                continue
            if self.takings.changed_since(holding):
                self._told.add((lent.site, site))
                write = Write(steps[-1].name, "optimizer", Line(steps[-1].site.place))
                name = Memory(holding.step.path)
                taken, used = Line(lent.site.place), Line(site.place)
                self.recorder.emit(AliasedSnapshot(name, taken, write, used, "alias", "the parameters"))
                return
