"""Writes seen by the native part, in torch's dispatcher: no caller can go round it, and most cost next to nothing.

The native part keeps the writes themselves. It calls back for code and lines that it has not met, and for the few
visits of a line that deserve a close look.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
import torch._ops

from torchsan import compat
from torchsan.observe.clock import clock
from torchsan.observe.constructors import maker_at
from torchsan.observe.guards import guards
from torchsan.observe.hurry import named_like
from torchsan.observe.ledger import Written
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import COMPILERS, OURS, SHOWN, USER, Site, is_compilers, kind_of, role_of, site_of
from torchsan.observe.writing import inside_step, runs_backward, worth_a_look, written_as

if TYPE_CHECKING:
    from torchsan.observe.sensors.writes import WriteSensor

_getframe = sys._getframe
_OPS = torch._ops.__file__
# What the native part is told of a code object, and of a site; the same numbers stand in its source.
IS_USER, IS_OURS, IS_STEP, IS_FORWARD, IS_SHOWN, IS_COMPILERS = 1, 2, 4, 8, 16, 32
NO_LOOK = 1
# Arguments, after the tensor that is written, of the ops that the native part takes without boxes.
UNBOXED = {
    *((), ("number",), ("Tensor",), ("Tensor", "bool"), ("Tensor", "number")),
    ("Tensor", "Tensor", "number"),
}


def _program_frame() -> FrameType:
    """The innermost frame that is neither ours nor of `torch.ops`, which hands every call on."""
    frame: FrameType | None = _getframe(1)
    while frame is not None and (kind_of(frame.f_code) == OURS or frame.f_code.co_filename == _OPS):
        frame = frame.f_back
    return frame if frame is not None else _getframe(1)


@functools.cache
def _references(op: str) -> int:
    """How often the native part holds a tensor that this op writes: in its note, and for most ops on torch's stack."""
    packet = getattr(torch.ops.aten, op, None)
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()] if packet is not None else []
    forms = [tuple(str(argument.type) for argument in schema.arguments[1:]) for schema in schemas]
    return 1 if any(form in UNBOXED for form in forms) else 2


@functools.cache
def _signature(overload: str) -> tuple[Any, list[str]] | None:
    """What does the op of this name again, on copies, and the names of its arguments that have no place."""
    namespace, _, name = overload.partition("::")
    name, _, form = name.partition(".")
    packet = getattr(torch.ops.aten, name, None)
    if namespace != "aten" or packet is None:
        return None  # what others have defined is done once
    op = getattr(packet, form or "default")
    by_name = [argument.name for argument in op._schema.arguments if argument.kwarg_only]
    # Without its `out=` it returns what it would have written there.
    return op if name.endswith("_") else packet, by_name


def _as_called(overload: str, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    """The op, its arguments by place and those by name."""
    known = _signature(overload)
    if known is None:
        return None
    op, by_name = known
    placed = len(args) - len(by_name)
    return op, args[:placed], dict(zip(by_name, args[placed:], strict=True))


class DispatchedLog(Mapping[int, list[Written]]):
    """The log of the native part, read when somebody asks."""

    def __init__(self, part: ModuleType, sites: list[tuple[Site, str | None]]) -> None:
        self._part = part
        self._sites = sites

    def written(self, record: tuple[Any, ...]) -> Written:
        before, number, op, version, start, end, layer, thread, moment = record
        site, shown = self._sites[number]
        when = clock.of_write(before, thread, moment)
        return Written(when, site, shown or op, version, "op", start, end, maker_at(layer) if layer else None)

    def __getitem__(self, memory: int) -> list[Written]:
        found = self._part.writes(memory)
        if not found:
            raise KeyError(memory)
        return [self.written(record) for record in found]

    def __iter__(self) -> Iterator[int]:
        return iter(self._part.memories())

    def __len__(self) -> int:
        return len(self._part.memories())


class DispatchedWrites:
    # The native part serves one recorder at a time.
    _owner: DispatchedWrites | None = None

    def __init__(self, sensor: WriteSensor, part: ModuleType) -> None:
        self.sensor = sensor
        self.recorder: Recorder = sensor.recorder
        self.part = part
        self.sites: list[tuple[Site, str | None]] = []
        self.log = DispatchedLog(part, self.sites)
        # Lines, by number, of which more visits than others are looked at.
        self._followed: set[int] = set()

    @classmethod
    def is_free(cls) -> bool:
        return cls._owner is None

    def install(self) -> None:
        DispatchedWrites._owner = self
        ledger, patches = self.recorder.ledger, self.recorder.patches
        ledger.writes, ledger.pull = self.log, self._pull
        guards.listeners.append(self._guarded)
        self._guarded()
        # The dispatcher sees `x[i] = v` as a copy into a view: which index made the view is known only here.
        self._set_item = torch.Tensor.__setitem__
        patches.set(torch.Tensor, "__setitem__", self.part.item_setter(compat.TensorBase, self._look_at_index))
        for kind in (torch._ops.OpOverload, torch._ops.OpOverloadPacket):
            patches.set(kind, "__call__", self._op(kind.__call__))
        self.sensor.exposure.serve_natively(self)
        clock.next_moment = self.part.moment
        self.part.start(self._describe, self._arrive, self._before, self.sensor.looked, clock.stamp, clock.home)
        if self.recorder.judging:
            self.sensor.exposure.graph.serve_natively(self.part)

    def pause(self) -> None:
        self.part.record(False)

    def resume(self) -> None:
        self.part.record(True)

    def close(self) -> None:
        if DispatchedWrites._owner is self:
            self._pull()
            self.part.stop()
            clock.next_moment = itertools.count(self.part.moment()).__next__
            guards.listeners.remove(self._guarded)
            DispatchedWrites._owner = None
            ledger = self.recorder.ledger
            ledger.writes, ledger.pull = ledger.log, lambda: None

    def _guarded(self) -> None:
        self.part.guard(guards.on)

    def _pull(self) -> None:
        for memory, record in self.part.take_silent():
            self.recorder.ledger.add_silent(memory, self.log.written(record)._replace(kind="data"))

    def expose(self, tensor: torch.Tensor) -> None:
        """Judge writes to this memory that the tensor's version does not count."""
        self.part.expose(tensor)

    def exposed_at(self, memory: int) -> Site | None:
        number = self.part.exposed_at(memory)
        return self.sites[number][0] if number >= 0 else None

    # -- called by the native part ------------------------------------------------------------------

    def _describe(self, code: CodeType) -> int:
        """What kind of code this is. Called once for each; `kind_of` keeps it, so that its address stays its own."""
        kind = kind_of(code)
        flags = IS_USER if kind == USER else IS_OURS if kind == OURS else 0
        if inside_step(code) or is_compilers(code):
            flags |= IS_STEP
        role = role_of(code)
        flags |= IS_SHOWN if role == SHOWN else IS_COMPILERS if role == COMPILERS else 0
        if code.co_name == "forward" and code.co_argcount:
            flags |= IS_FORWARD
        return flags

    def _arrive(self) -> tuple[int, int]:
        """A line that writes for the first time: its number from now on, and whether it is to be looked at."""
        try:
            frame = _program_frame()
            shown = written_as(frame.f_code, frame.f_lasti)
            self.sites.append((site_of(frame), shown))
            no_look = runs_backward(frame.f_code) or shown == "__setitem__"
            return len(self.sites) - 1, NO_LOOK if no_look else 0
        except Exception as error:
            self.recorder.give_up(error)
            self.sites.append((site_of(_getframe(0)), None))
            return len(self.sites) - 1, NO_LOOK

    def _before(
        self, op: str, number: int, tensors: tuple[Any, ...], seen: int, overload: str, args: tuple[Any, ...] | None
    ) -> Any:
        frame = _program_frame()
        if guards.on:
            guards.before_write(tensors, frame)
        site, shown = self.sites[number]
        if not self._deserves(site, seen) or shown == "__setitem__" or inside_step(frame.f_code):
            return None
        aliases = self.sensor.aliases
        aliases.sensor_holds = _references(op)
        look = functools.partial(self.sensor.look, shown or op, site, tensors)
        known = _as_called(overload, args) if args is not None else None
        token = look(tensors, frame, seen) if known is None else look(known[1], frame, seen, known[2], known[0])
        aliases.sensor_holds = 0  # `x[i] = y` is seen by a sensor in Python
        self._follow(number, site)
        return token

    def _deserves(self, site: Site, seen: int) -> bool:
        return worth_a_look(seen) or self.sensor.aliases.follows(site, seen)

    def _follow(self, number: int, site: Site) -> None:
        """The native part is to call for the next visits of this line, too, or no more."""
        follows = self.sensor.aliases.follows(site, 0)
        if follows is not (number in self._followed):
            (self._followed.add if follows else self._followed.discard)(number)
            self.part.follow(number, follows)

    # -- what the dispatcher cannot tell ------------------------------------------------------------

    def _look_at_index(self, tensor: Any, index: Any, value: Any, seen: int) -> None:
        frame = _getframe(1)
        args, site = (tensor, index, value), site_of(frame)
        token = self.sensor.look("__setitem__", site, (tensor,), args, frame, seen, {}, self._set_item)
        if self.sensor.aliases.follows(site, 0) or self._followed:
            for number in [number for number, (known, _) in enumerate(self.sites) if known == site]:
                self._follow(number, site)
        try:
            self._set_item(tensor, index, value)
        except (RuntimeError, NotImplementedError) as error:
            self.sensor.refused("__setitem__", (tensor,), error, frame)
            raise
        if token is not None:
            self.sensor.looked(token)

    def _op(self, original: Any) -> Any:
        """Ops that were defined since the start get their kernels before they are first called."""
        refresh = self.part.refresh

        def __call__(op: Any, /, *args: Any, **kwargs: Any) -> Any:
            refresh()
            return original(op, *args, **kwargs)

        return named_like(__call__, original)
