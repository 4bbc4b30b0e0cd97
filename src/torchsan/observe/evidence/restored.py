"""`p.data = kept`, of the memory that the parameter has already: it gets back what it has, however it was changed."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from torchsan.model.events import AliasedSnapshot, Line, Memory, Write
from torchsan.observe.evidence.itself import LastWrite
from torchsan.observe.holders.census import take_census
from torchsan.observe.holders.extents import extent_of
from torchsan.observe.holders.storing import stored_at
from torchsan.observe.holders.takings import Takings
from torchsan.observe.objects import is_a
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import Site, site_of, user_frames
from torchsan.observe.tensors import memory_of

MAX_GIVEN = 4_096


@dataclass(frozen=True, slots=True)
class _Given:
    parameter: weakref.ref[torch.Tensor]
    memory: int
    steps: int


class Restored:
    def __init__(self, recorder: Recorder, takings: Takings, last_write: LastWrite) -> None:
        self.recorder = recorder
        self.takings = takings
        self.last_write = last_write
        self._given: dict[int, _Given] = {}

    def given(self, tensor: torch.Tensor, memory: int) -> None:
        """A parameter got other memory by `.data =`."""
        if len(self._given) >= MAX_GIVEN:
            self._given.clear()
        self._given[id(tensor)] = _Given(weakref.ref(tensor), memory, self.recorder.ledger.steps_made)

    def given_again(self, tensor: torch.Tensor, value: Any, frame: FrameType) -> None:
        """It got the memory that it had already: nothing is restored if that has been trained since."""
        known = self._given.get(id(tensor))
        if known is None or known.parameter() is not tensor or memory_of(tensor) != known.memory:
            self._taken_from_it(value, frame)
            return
        steps = [s for s in self.recorder.ledger.steps if s.number > known.steps and known.memory in s.memories]
        if not steps:
            return
        # What the program keeps under another name, and not the parameter itself (`p.data = p.data.view(…)`).
        extent = extent_of(value)
        others = [h for h in take_census(frame, around=(value,)).holdings if not is_a(h.value, torch.nn.Parameter)]
        kept = next((h for h in others if extent is not None and h.extent.covers(extent)), None)
        if kept is not None:
            self._tell(kept.step.path, steps[-1].name, steps[-1].site, site_of(frame))

    def _taken_from_it(self, value: Any, frame: FrameType) -> None:
        """The memory was the parameter's from the start, was put aside and has changed since: no copy was kept."""
        census, extent = take_census(frame, around=(value,)), extent_of(value)
        others = [h for h in census.holdings if not is_a(h.value, torch.nn.Parameter) and h.extent == extent]
        kept = next((h for h in others if h.step.kind == "item" and self.takings.changed_since(h)), None)
        write = self.last_write(value, census) if kept is not None else None
        if kept is not None and write is not None:
            taken = stored_at(kept.step, user_frames(frame))
            line = Line(site_of(frame).place)
            self.recorder.emit(AliasedSnapshot(Memory(kept.step.path), taken, write, line, "itself", "the parameter"))

    def _tell(self, name: str, optimizer: str, stepped: Site, site: Site) -> None:
        write = Write(optimizer, "optimizer", Line(stepped.place))
        line = Line(site.place)
        # To point the parameters to where they are can be meant, too.
        self.recorder.emit(
            AliasedSnapshot(Memory(name), line, write, line, "itself", "the parameters", certainty="possible")
        )
