"""Models that a fork has copied: does the child train its copy, and does the parent go on with the one from before?

Each side tells what it knows; only both together are a fault. A child that sends tensors, or writes a file, gives its
weights back in its own way. A parent that writes the model afterwards has got them, or trains it itself.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch

from torchsan.observe.clock import clock
from torchsan.observe.flights import Side, sides_of
from torchsan.observe.going_on import Way, goes_on_with, models_of
from torchsan.observe.ledger import Written
from torchsan.observe.objects import is_a, is_exactly, is_tensor, items_of
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.refusals import whole_statement
from torchsan.observe.sensors.replicas import row
from torchsan.observe.sites import USER, Site, kind_of, user_frames

_getframe = sys._getframe
MAX_MODELS, MAX_PARAMETERS = 64, 4_096
CALLERS = 4
# Containers that are looked into; a class of the user's own may count its entries in its own way.
PLAIN = (list, tuple, dict)
WRITING = os.O_WRONLY | os.O_RDWR


@dataclass(slots=True)
class _Handed:
    """A model of this process's own when it started a child."""

    name: str
    parameters: frozenset[int]
    sides: list[Side]
    when: int
    writes: list[list[Written]]  # all that were known by then, for each
    module: weakref.ref[Any]
    used: bool = False  # the program goes on to run it, or hands it to a function of its own
    read: bool = False  # its name comes up again at all
    asked: set[tuple[CodeType, int]] = field(default_factory=set)  # the lines below which was looked

    def ask(self, way: Way, frame: FrameType) -> None:
        self.asked.add((frame.f_code, frame.f_lasti))
        used, read = goes_on_with(way, frame)
        if read and not self.read:
            self.name = way.path
        self.used, self.read = self.used or used, self.read or read


class Forks:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._pid = os.getpid()
        self._models: dict[int, _Handed] = {}
        self._sent = False  # something went to another process
        self._gave_back = False  # something went out that may hold the weights
        self._trained: tuple[Site, _Handed] | None = None

    def install(self) -> None:
        self.recorder.on_save.append(self._saved)

    def close(self) -> None:
        if os.getpid() != self._pid:
            self._tell_trained()
        else:
            for handed in list(self._models.values()):
                self._tell_untouched(handed)
        self._models.clear()

    def _saved(self) -> None:
        self._gave_back = True

    # -- the parent ---------------------------------------------------------------------------------

    @shield
    def starting(self, frame: FrameType) -> None:
        """A process is about to be started: which models would a fork copy?"""
        if not self.recorder.active or self.recorder.paused or os.getpid() != self._pid:
            return
        for user in user_frames(frame)[:CALLERS]:
            for way, module in models_of(user):
                self._hand_over(way, module, user)

    def _hand_over(self, way: Way, module: torch.nn.Module, frame: FrameType) -> None:
        parameters = list(module.parameters())
        ids = frozenset(map(id, parameters))
        known = self._models.get(id(module))
        if known is not None and known.parameters == ids:
            if not known.used and (frame.f_code, frame.f_lasti) not in known.asked:
                known.ask(way, frame)
            return
        if not ids or len(ids) > MAX_PARAMETERS or len(self._models) >= MAX_MODELS:
            return
        if any(p.device.type != "cpu" or p.is_shared() for p in parameters):
            return
        sides = sides_of(parameters, look=False)
        key = id(module)
        # A module is gone before its parameters are: what happened to them can be asked then, and not later.
        gone = weakref.ref(module, lambda _: self._gone(key))
        handed = self._models[key] = _Handed(way.path, ids, sides, clock.now(), self._writes(sides), gone)
        handed.ask(way, frame)

    def _gone(self, key: int) -> None:
        handed = self._models.pop(key, None)
        if handed is not None and self.recorder.active and os.getpid() == self._pid:
            self._tell_untouched(handed)

    @shield
    def _tell_untouched(self, handed: _Handed) -> None:
        """At its end: a model that is as it was when a child was started."""
        journal, ledger = self.recorder.journal, self.recorder.ledger
        if journal is None or not handed.read or not all(side.alive() for side in handed.sides):
            return
        stepped = any(True for side in handed.sides for _ in ledger.steps_after(side.memory, handed.when))
        if not stepped and self._writes(handed.sides) == handed.writes:
            journal.write("untouched", name=handed.name, used=handed.used)

    def _writes(self, sides: list[Side]) -> list[list[Written]]:
        return [list(self.recorder.ledger.writes.get(side.memory, [])) for side in sides]

    # -- the child ----------------------------------------------------------------------------------

    def sent(self, value: Any) -> None:
        self._sent = True
        self._gave_back = self._gave_back or any(True for _ in _rich_in(value))

    def sent_bytes(self, frame: FrameType) -> None:
        """Bytes of the program's own may hold anything; those of a queue were looked at as values."""
        if kind_of(frame.f_code) == USER:
            self._gave_back = True

    def before_step(self, parameters: list[Any], site: Site) -> None:
        if os.getpid() == self._pid or self._trained is not None:
            return
        ids = {id(p) for p in parameters}
        handed = next((h for h in self._models.values() if h.read and ids & h.parameters), None)
        if handed is not None:
            self._trained = (site, handed)
            sys.addaudithook(self._audit)  # never taken away: for this child only, which has begun to train

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[2], int) and args[2] & WRITING and not isinstance(args[0], int):
            self._gave_back = True

    @shield
    def _tell_trained(self) -> None:
        journal = self.recorder.journal
        if journal is not None and self._trained is not None and not self._gave_back:
            site, handed = self._trained
            line = row(whole_statement(site.place))
            journal.write("own_copy", name=handed.name, line=line, sent=self._sent)


def _rich_in(value: Any, depth: int = 4) -> Iterator[Any]:
    """What may hold weights: anything but plain numbers, texts and containers of such."""
    if value is None or any(is_a(value, kind) for kind in (str, int, float, complex)):
        return
    if is_tensor(value):
        if value.numel() > 1:
            yield value
        return
    held = [item for _, item in items_of(value, 1_000)]
    if not depth or not is_exactly(value, PLAIN) or len(held) != len(value):
        yield value
        return
    for item in held:
        yield from _rich_in(item, depth - 1)
