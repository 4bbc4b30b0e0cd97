"""Watches collectives where Python's calls go through the process group: what they write, and when they are done."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from torchsan import compat
from torchsan import compat_distributed as distributed
from torchsan.observe.clock import clock
from torchsan.observe.flights import Flight, sides_of, tensors_in, version_of
from torchsan.observe.functional import FunctionalResults
from torchsan.observe.inflight import InFlight
from torchsan.observe.ledger import Written
from torchsan.observe.names import local_names
from torchsan.observe.order import CallOrder
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.refusals import whole_statement
from torchsan.observe.sites import TORCH, USER, kind_of, site_of
from torchsan.observe.wrapped import WrappedModules

_getframe = sys._getframe
MAX_FLIGHTS = 4_096
# Collectives after which all ranks hold the same.
SUMS = ("all_reduce", "all_gather", "all_gather_into_tensor", "broadcast")
BROADCAST = "DDP's broadcast of buffers"
GRADIENTS = "DDP's sum of gradients"


class CollectiveSensor:
    def __init__(self, recorder: Recorder, wrapped: WrappedModules | None = None) -> None:
        self.recorder = recorder
        self.wrapped = wrapped
        self.ledger = recorder.ledger
        # Collectives that nobody has waited for yet, by the identity of their Work.
        self.flights: dict[int, Flight] = {}
        self.inflight = InFlight(recorder)
        self.order = CallOrder(recorder)
        self.functional = FunctionalResults(recorder)
        # The group of a DDP module that has run forward and not yet backward.
        self._sums_to_come: Any = None
        # The sums that a backward is about to make, and the error that was being handled when it began.
        self._summing: tuple[Flight, BaseException | None] | None = None
        # Broadcasts of DDP whose line has the name of a buffer already.
        self._named: set[Any] = set()

    def install(self) -> None:
        if not distributed.available():
            return
        patches = self.recorder.patches
        for name in distributed.COLLECTIVES:
            if name in vars(distributed.ProcessGroup):
                original = getattr(distributed.ProcessGroup, name)
                patches.set(distributed.ProcessGroup, name, self._method(name, original))
        patches.set(distributed.Work, "wait", self._wait(distributed.Work.wait))
        for name in ("is_completed", "get_future", "synchronize", "result"):
            patches.set(distributed.Work, name, self._asking(name, getattr(distributed.Work, name)))
        self.functional.install()
        self.recorder.when_parallel.append(self._attend)
        ddp = distributed.ddp_class()
        if hasattr(ddp, "_sync_buffers"):
            patches.set(ddp, "_sync_buffers", self._buffers_synced(ddp._sync_buffers))
        if hasattr(ddp, "_pre_forward"):
            patches.set(ddp, "_pre_forward", self._forward_of_ddp(ddp._pre_forward))

    def _attend(self) -> None:
        self.recorder.steps.before.append(self.inflight.before_step)
        self.recorder.steps.after.append(self.inflight.after_step)
        self.recorder.before_backward.append(self._before_backward)
        # First of all: others may end the program here.
        self.recorder.after_backward.insert(0, self._after_backward)

    def close(self) -> None:
        self.inflight.close()
        self.flights.clear()

    # -- wrappers -----------------------------------------------------------------------------------

    def _method(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def method(group: Any, *args: Any, **kwargs: Any) -> Any:
            flight = self._begin(name, group, args, kwargs, _getframe(1))
            try:
                work = original(group, *args, **kwargs)
            except BaseException:
                if flight is not None:
                    self._unhush(flight)
                raise
            if flight is not None:
                self._took_off(flight, work)
            return work

        method.__name__, method.__doc__ = name, original.__doc__
        return method

    def _wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(work, *args, **kwargs)
            flight = self.flights.pop(id(work), None)
            if flight is not None:
                self._landed(flight)
                self.inflight.result_dropped(flight, _getframe(1))
            return result

        wait.__doc__ = original.__doc__
        return wait

    def _asking(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Other ways than `wait` to know that a collective is done."""

        def method(work: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(work, *args, **kwargs)
            flight = self.flights.get(id(work))
            if flight is not None and not (name == "is_completed" and not result):
                self._excused(flight)
            return result

        method.__name__, method.__doc__ = name, original.__doc__
        return method

    def _buffers_synced(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """DDP copies rank 0's buffers into the others' before a forward, and hides that from the version counter."""

        def _sync_buffers(ddp: Any, *args: Any, **kwargs: Any) -> Any:
            flight = self._broadcast_begins(ddp, _getframe(1))
            result = original(ddp, *args, **kwargs)
            if flight is not None:
                self._buffers_landed(ddp, flight)
            return result

        return _sync_buffers

    def _forward_of_ddp(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A forward whose backward will add up gradients: C++ does so, out of Python's sight."""

        def _pre_forward(ddp: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled() and ddp.require_backward_grad_sync and not ddp._join_config.enable:
                self.recorder.parallel()
                self._sums_to_come = ddp.process_group
            return original(ddp, *args, **kwargs)

        return _pre_forward

    def _before_backward(self, roots: list[Any], frame: FrameType) -> None:
        self.inflight.before_backward(frame)
        group, self._sums_to_come = self._sums_to_come, None
        if group is not None:
            flight = Flight(GRADIENTS, distributed.group_name(group), site_of(frame), clock.now())
            self.order.pseudo(flight, group)
            self._summing = (flight, sys.exc_info()[1])

    @shield
    def _after_backward(self, backwards: int) -> None:
        """A backward that failed has left its sums undone: another rank did not come."""
        self.inflight.mode.settle()
        if self._summing is not None:
            (flight, error), self._summing = self._summing, None
            if sys.exc_info()[1] is error:
                self.order.landed(flight)

    # -- recording ----------------------------------------------------------------------------------

    @shield
    def _begin(
        self, name: str, group: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> Flight | None:
        if not self.recorder.active or self.recorder.paused:
            return None
        self.recorder.parallel()
        caller = _caller(frame)
        asked_by = kind_of(caller.f_code) if caller is not None else TORCH
        flight = Flight(
            op=distributed.PUBLIC_NAMES.get(name, name),
            group=distributed.group_name(group),
            site=site_of(frame),
            before=clock.now(),
            mine=asked_by != TORCH,
            direct=asked_by == USER,
            asynchronous=_is_asynchronous(frame, caller),
        )
        first = args[0] if args else _named(kwargs, "output", "tensor")
        second = args[1] if len(args) > 1 else _named(kwargs, "input")
        if name in distributed.READING:
            flight.inputs = sides_of(first, look=False)
        elif name not in distributed.WITHOUT_TENSORS:
            flight.outputs = sides_of(first, look=True)
            if name in distributed.INTO:
                flight.inputs = sides_of(second, look=False)
        flight.receives = _receives(flight.op, args, group.rank())
        self._hush(flight, (first, second))
        self.inflight.begun(flight, args, group.size(), group.rank(), frame)
        self.order.begun(flight, group, args, frame)
        if not flight.mine and any(t.numel() > 1 for t in tensors_in((first, second))):
            self.functional.called(frame, flight.site)
        return flight

    def _hush(self, flight: Flight, given: Any) -> None:
        """A thread of the backend may make nodes of values with a history. The lines recorded with nodes are Python
        objects; a thread that drops one needs the interpreter, and whoever holds it may be waiting for that thread."""
        history = torch.is_grad_enabled() and any(t.requires_grad for t in tensors_in(given))
        if history and compat.is_anomaly() and not compat.is_anomaly_check_nan():
            flight.hushed = True
            compat.set_anomaly(False, False)

    def _unhush(self, flight: Flight) -> None:
        if flight.hushed and self.recorder.active and not self.recorder.paused:
            compat.set_anomaly(True, False)
        flight.hushed = False

    @shield
    def _took_off(self, flight: Flight, work: Any) -> None:
        if work is None:
            self._landed(flight)
            return
        key = id(work)
        if len(self.flights) >= MAX_FLIGHTS:
            del self.flights[next(iter(self.flights))]
        flight.work = weakref.ref(work, lambda _: self._dropped(key, flight))
        self.flights[key] = flight
        self.inflight.took_off(flight)

    @shield
    def _landed(self, flight: Flight) -> None:
        """The result is there: what changed was written, the rest (a source's own data, a group of one) was not."""
        flight.landed = True
        self._unhush(flight)
        if flight.mine and flight.op in SUMS:
            for side in flight.outputs:
                tensor = side.tensor()
                self.recorder.reduced[side.memory] = tensor.numel() if tensor is not None else 0
        self.inflight.landed(flight)
        if flight.op == "barrier":
            self.inflight.all_done(flight.group)
        self.order.landed(flight)
        flight.changed = set()
        for side in flight.outputs:
            version = version_of(side)
            now = side.look()
            changed = side.contents is not None and now is not None and now != side.contents
            if changed:
                flight.changed.add(side.memory)
            if changed or version != side.version:
                write = Written(flight.before, flight.site, flight.op, version, "collective", side.start, side.end)
                self.ledger.add(side.memory, write)
                if version == side.version:
                    self.ledger.add_silent(side.memory, write)

    @shield
    def _buffers_landed(self, ddp: Any, flight: Flight) -> None:
        self._landed(flight)
        if self.wrapped is not None:
            self.wrapped.buffers_synced(ddp, flight, flight.changed)

    @shield
    def _dropped(self, key: int, flight: Flight) -> None:
        self.flights.pop(key, None)
        self._unhush(flight)
        if self.recorder.active:
            self.inflight.dropped(flight)

    @shield
    def _excused(self, flight: Flight) -> None:
        self._unhush(flight)
        self.inflight.excused(flight)

    @shield
    def _broadcast_begins(self, ddp: Any, frame: FrameType) -> Flight | None:
        if not self.recorder.active or self.recorder.paused or not ddp.will_sync_module_buffers():
            return None
        site = site_of(frame)
        flight = Flight(BROADCAST, distributed.group_name(ddp.process_group), site, clock.now())
        if not ddp._join_config.enable:
            self.order.pseudo(flight, ddp.process_group)
        # The rank that sends keeps what it has: nothing is to be looked at there.
        if not distributed.sends_buffers(ddp):
            for name, buffer in ddp.module.named_buffers():
                flight.outputs.extend(sides_of(buffer, look=True))
                if site not in self._named:
                    self._named.add(site)
                    self.recorder.names.setdefault(whole_statement(site.place), name)
        return flight


def _receives(op: str, args: tuple[Any, ...], rank: int) -> bool:
    root = next((a.rootRank for a in args if hasattr(a, "rootRank")), -1)
    return root != rank if op == "broadcast" else root == rank if op == "reduce" else True


def _named(kwargs: dict[str, Any], *starts: str) -> Any:
    return next((value for name, value in kwargs.items() if name.startswith(starts)), None)


def _caller(frame: FrameType | None) -> FrameType | None:
    """The frame that called the function of torch.distributed."""
    while frame is not None and frame.f_code.co_filename.endswith(("distributed_c10d.py", "c10d_logger.py")):
        frame = frame.f_back
    return frame


def _is_asynchronous(frame: FrameType, caller: FrameType | None) -> bool:
    """Does the program get a Work to wait for?"""
    if caller is frame or frame.f_code.co_name in ("isend", "irecv"):
        return True
    return bool(local_names(frame).get("async_op"))
