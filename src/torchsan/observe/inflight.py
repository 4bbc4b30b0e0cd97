"""Collectives of the program's own that nobody has waited for yet, and what happens to their memory meanwhile."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from torchsan import compat
from torchsan.model.events import GradientCut, Line, Memory
from torchsan.model.parallel_events import ResultDropped, StridedCollective, TouchedInFlight
from torchsan.observe import expressions as syntax
from torchsan.observe.flights import Flight, Side, dense, sides_of, tensors_in
from torchsan.observe.made_from import is_made_up, made_from
from torchsan.observe.names import name_memory
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.refusals import whole_statement
from torchsan.observe.sites import Site, site_of
from torchsan.observe.steps import OptimizerStep
from torchsan.observe.tensors import is_plain
from torchsan.observe.touching import TouchMode, where

# Gloo adds up and copies memory as it lies there; these ops look at strides no more than it does.
BY_MEMORY = ("all_reduce", "broadcast", "reduce", "scatter", "all_to_all_single")
LOOKS = 3
# Who holds a result that nobody has a name for: its tensor, and the storage with which we ask.
ALONE = 2


@dataclass(slots=True)
class Cut:
    """A gather of a value with a graph: its copies have none."""

    flight: Flight
    name: str
    own: list[tuple[Side, int, int]] = field(default_factory=list)
    entered: bool = False
    told: bool = False


class InFlight:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.mode = TouchMode(self._touched, self._done)
        self.open: dict[int, Flight] = {}
        self._cuts: list[Cut] = []
        self._seen: dict[Site, int] = {}
        self._local: list[Side] = []
        self._unwaited: list[Flight] = []  # under way when an optimizer's step began
        self.on_local_write: Callable[[str, Any, FrameType], None] = lambda name, args, frame: None

    def close(self) -> None:
        for flight in list(self.open.values()):
            self._tell(flight, waited=False)
        self.open.clear()
        self._cuts.clear()
        self.mode.end()

    # -- the life of a flight -----------------------------------------------------------------------

    def begun(self, flight: Flight, args: tuple[Any, ...], members: int, rank: int, frame: FrameType) -> None:
        if members > 1 and flight.op in BY_MEMORY:
            for tensor in tensors_in(args[0] if args else None):
                self._strided(flight, tensor, frame)
        if flight.asynchronous and flight.outputs:
            flight.name = name_memory(flight.outputs[0].memory, frame).name or _as_written(flight)
        if flight.op.startswith("all_gather") and torch.is_grad_enabled() and members > 1:
            self._gathered(flight, args, members, rank, frame)

    def took_off(self, flight: Flight) -> None:
        if flight.asynchronous and flight.mine:
            self.open[id(flight)] = flight
            self.mode.begin()

    def landed(self, flight: Flight) -> None:
        if self.open.pop(id(flight), None) is not None:
            self._tell(flight, waited=True)
        self._rest()

    def excused(self, flight: Flight) -> None:
        """Somebody asked for its future, or saw that it was done: it is in good hands."""
        self.open.pop(id(flight), None)
        self._rest()

    def dropped(self, flight: Flight) -> None:
        """Its Work is gone: nobody can wait for it any more."""
        if id(flight) in self.open:
            flight.dropped = True
            if flight.touched is not None:
                self._tell(flight, waited=False)
                del self.open[id(flight)]
                self._rest()

    def _rest(self) -> None:
        if self.mode.wanted and (self.mode.left <= 0 or not (self.open or self._cuts or self._local)):
            self.open.clear()
            self._cuts.clear()
            self._local.clear()
            self.mode.end()

    # -- touched too early --------------------------------------------------------------------------

    def watch_local(self, tensor: torch.Tensor) -> None:
        """Look out for writes to this rank's part of a DTensor."""
        if len(self._local) < LOOKS * 4:
            self.recorder.parallel()
            self._local.extend(sides_of(tensor, look=False))
            self.mode.begin()

    def _touched(self, tensor: torch.Tensor, writes: bool, frame: FrameType, name: str, args: Any) -> None:
        if not is_plain(tensor):
            return
        spot = where(tensor)
        if spot is None:
            return
        if writes and any(side.overlaps(*spot) for side in self._local):
            self.on_local_write(name, args, frame)
        for flight in list(self.open.values()):
            sides = [*flight.outputs, *flight.inputs] if writes else flight.outputs
            if flight.touched is not None and (flight.written is not None or not writes):
                continue
            if any(side.overlaps(*spot) for side in sides):
                if flight.touched is not None:
                    flight.written = site_of(frame)
                    continue
                flight.touched = (site_of(frame), writes)
                if flight.dropped:
                    self._tell(flight, waited=False)
                    del self.open[id(flight)]
        if self.mode.left <= 0:
            self._rest()

    def before_step(self, step: OptimizerStep) -> None:
        if not step.inner:
            self._unwaited = self._used_by(step.parameters) if self.open else []

    def _used_by(self, parameters: list[Any]) -> list[Flight]:
        """Collectives under way on gradients or weights that a step is about to use."""
        spots = [spot for p in parameters for t in (p, p.grad) if t is not None and is_plain(t) and (spot := where(t))]
        found = [f for f in self.open.values() if f.touched is None]
        return [f for f in found if any(side.overlaps(*spot) for side in f.outputs for spot in spots)]

    def after_step(self, step: OptimizerStep) -> None:
        """Nobody has waited, nor has the step, as an optimizer of the program's own may: it used what was there."""
        if step.inner or not self._unwaited:
            return
        flights, self._unwaited = self._unwaited, []
        for flight in flights:
            if id(flight) in self.open and flight.touched is None:
                flight.touched = (site_of(step.frame), False)
                if flight.dropped:
                    self._tell(flight, waited=False)
                    del self.open[id(flight)]
        self._rest()

    def all_done(self, group: str) -> None:
        """A barrier returns when all that was begun before it is done."""
        for flight in [f for f in self.open.values() if f.group == group and f.touched is None]:
            self.excused(flight)

    @shield
    def _tell(self, flight: Flight, *, waited: bool) -> None:
        if flight.touched is None:
            return
        site, writes = flight.touched
        self.recorder.emit(
            TouchedInFlight(
                memory=Memory(flight.name),
                op=flight.op,
                called=Line(flight.site.place),
                touched=Line(whole_statement(site.place)),
                writes=writes,
                waited=waited,
                written=Line(whole_statement(flight.written.place)) if flight.written is not None else None,
            )
        )

    # -- memory that is not what it seems -----------------------------------------------------------

    def _strided(self, flight: Flight, tensor: torch.Tensor, frame: FrameType) -> None:
        if tensor.device.type != "cpu" or tensor.numel() <= 1 or tensor.is_contiguous() or not flight.mine:
            return
        if any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
            form = "overlap"
        elif not dense(tensor):
            form = "gaps"
        else:
            return  # a permutation of dense memory: right as long as all ranks have the same one
        spot = where(tensor)
        memory = name_memory(spot[0] if spot else None, frame, tuple(tensor.shape))
        line = Line(flight.site.place)
        self.recorder.emit(StridedCollective(memory, flight.op, line, form, str(tuple(tensor.stride()))))  # type: ignore[arg-type]

    @shield
    def result_dropped(self, flight: Flight, frame: FrameType) -> None:
        """After a call that waited: does anybody but the call itself hold the memory with the result?"""
        if flight.asynchronous or not flight.mine or flight.op not in ("all_reduce", "broadcast", "reduce"):
            return
        if not flight.receives or not flight.direct:
            return
        seen = self._seen.get(flight.site, 0)
        if seen >= LOOKS or len(flight.outputs) != 1:
            return
        self._seen[flight.site] = seen + 1
        side = flight.outputs[0]
        tensor = side.tensor()
        if tensor is None or compat.storage_owners(tensor) > ALONE:
            return
        place = flight.site.place
        file = syntax.file_of(place.path)
        call = file.at(place) if file else None
        if not isinstance(call, ast.Call) or not call.args:
            return
        caller = _frame_of(frame, flight.site)
        owner = made_from(call.args[0], caller, side.memory) if caller is not None else None
        if owner is not None and tensor.numel() <= 1 and is_made_up(call.args[0]):
            return  # a barrier, or a number of the program's
        if owner is not None:
            expression = syntax.text_of(call.args[0])
            self.recorder.emit(ResultDropped(flight.op, Line(place), expression, syntax.text_of(owner)))

    # -- gradients that a gather cuts off -----------------------------------------------------------

    def _gathered(self, flight: Flight, args: tuple[Any, ...], members: int, rank: int, frame: FrameType) -> None:
        seen = self._seen.get(flight.site, 0)
        given = list(tensors_in(args[1])) if len(args) > 1 else []
        if seen >= LOOKS or not flight.mine or len(given) != 1 or not given[0].requires_grad:
            return
        self._seen[flight.site] = seen + 1
        own: list[tuple[Side, int, int]] = []
        if len(flight.outputs) == members:
            side = flight.outputs[rank]
            own.append((side, side.start, side.end))
        elif len(flight.outputs) == 1:
            side = flight.outputs[0]
            part = (side.end - side.start) // members
            own.append((side, side.start + rank * part, side.start + (rank + 1) * part))
        spot = where(given[0])
        name = name_memory(spot[0] if spot else None, frame).name
        self._cuts.append(Cut(flight, name, own))
        self.mode.begin()

    def _done(self, given: list[torch.Tensor], result: Any, frame: FrameType) -> None:
        if not self._cuts:
            return
        spots = [spot for spot in map(where, given) if spot is not None]
        results = [t for t in tensors_in(result) if is_plain(t)]
        for cut in self._cuts:
            if not any(_within(cut, spot) for spot in spots):
                continue
            if any(t.requires_grad for t in results):
                cut.entered = True
            else:
                self._follow(cut, results)

    def _follow(self, cut: Cut, results: list[torch.Tensor]) -> None:
        if len(cut.own) < 64:
            for side in sides_of(results, look=False):
                cut.own.append((side, side.start, side.end))

    def before_backward(self, frame: FrameType) -> None:
        for cut in self._cuts:
            if cut.entered and not cut.told:
                cut.told = True
                called = Line(cut.flight.site.place)
                needed = Line(site_of(frame).place)
                self.recorder.emit(GradientCut(Memory(cut.name), called, "gathered", needed, cut.flight.op))
        self._cuts.clear()
        self._local.clear()
        self._rest()


def _as_written(flight: Flight) -> str:
    """What a line of the program's own hands over, in its own words; nothing where that is a call's result."""
    file = syntax.file_of(flight.site.place.path) if flight.direct else None
    call = file.at(flight.site.place) if file else None
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    return syntax.text_of(given) if isinstance(given, (ast.Name, ast.Attribute, ast.Subscript)) else ""


def _within(cut: Cut, spot: tuple[int, int, int]) -> bool:
    memory, start, end = spot
    return any(s.memory == memory and start < stop and begin < end and s.alive() for s, begin, stop in cut.own)


def _frame_of(frame: FrameType | None, site: Site) -> FrameType | None:
    while frame is not None and frame.f_code is not site.code:
        frame = frame.f_back
    return frame
