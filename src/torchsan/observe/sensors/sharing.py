"""Watches memory that goes from process to process: shared on purpose, sent through queues, or copied by a fork."""

from __future__ import annotations

import multiprocessing.connection
import multiprocessing.process
import multiprocessing.queues
import multiprocessing.synchronize
import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from torchsan import compat_distributed as distributed
from torchsan.model.events import Line, Memory
from torchsan.model.parallel_events import SharedMemory
from torchsan.observe.clock import clock
from torchsan.observe.flights import Side, sides_of
from torchsan.observe.forks import Forks
from torchsan.observe.ledger import Written
from torchsan.observe.names import in_variables
from torchsan.observe.objects import attributes_of, is_a, is_tensor, items_of
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.refusals import whole_statement
from torchsan.observe.sensors.replicas import ReplicaSensor, row
from torchsan.observe.sites import USER, Site, kind_of, site_of, user_frames
from torchsan.observe.steps import OptimizerStep

_getframe = sys._getframe
MAX_SENT = 64
LOOKS = 3
# Whoever calls one of these may have been told by the other side that it has taken what was sent.
ANSWERS: tuple[tuple[Any, str], ...] = (
    (multiprocessing.queues.Queue, "get"),
    (multiprocessing.queues.SimpleQueue, "get"),
    (multiprocessing.queues.JoinableQueue, "join"),
    (multiprocessing.connection._ConnectionBase, "recv"),
    (multiprocessing.connection._ConnectionBase, "recv_bytes"),
    (multiprocessing.synchronize.Event, "wait"),
    (multiprocessing.synchronize.Condition, "wait"),
    (multiprocessing.process.BaseProcess, "join"),
)
SENDS: tuple[tuple[Any, str], ...] = (
    (multiprocessing.queues.Queue, "put"),
    (multiprocessing.queues.SimpleQueue, "put"),
    (multiprocessing.connection._ConnectionBase, "send"),
)


class SharingSensor:
    def __init__(self, recorder: Recorder, replicas: ReplicaSensor) -> None:
        self.recorder = recorder
        self.replicas = replicas
        # Tensors sent to another process that were not shared before: each may still be read there.
        self._sent: list[tuple[Side, Site, int, str, list[Written]]] = []
        self._pid = os.getpid()
        self.forks = Forks(recorder)
        self._looks: dict[object, int] = {}

    def install(self) -> None:
        patches = self.recorder.patches
        for owner, name in SENDS:
            patches.set(owner, name, self._sending(name, getattr(owner, name)))
        for owner, name in ANSWERS:
            patches.set(owner, name, self._answered(name, getattr(owner, name)))
        connection = multiprocessing.connection._ConnectionBase
        patches.set(connection, "send_bytes", self._giving("send_bytes", connection.send_bytes))
        patches.set(torch.Tensor, "share_memory_", self._sharing(torch.Tensor.share_memory_))
        start = multiprocessing.process.BaseProcess.start
        patches.set(multiprocessing.process.BaseProcess, "start", self._starting(start))
        self.forks.install()
        self.replicas.before_steps.append(self._before_step)
        self.replicas.on_wrap.append(self._ddp_made)

    def close(self) -> None:
        if self.recorder.active:
            self._written_since()
            self.forks.close()

    # -- wrappers -----------------------------------------------------------------------------------

    def _sending(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def put(queue: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            self.forks.sent(value)
            self._noted(value, _getframe(1))
            return original(queue, value, *args, **kwargs)

        put.__name__, put.__doc__ = name, original.__doc__
        return put

    def _answered(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def method(this: Any, *args: Any, **kwargs: Any) -> Any:
            # The threads of multiprocessing itself wait for one another all the time, and tell the program nothing.
            if self._sent and user_frames(_getframe(1), 1):
                self._written_since()
                self._sent.clear()
            return original(this, *args, **kwargs)

        method.__name__, method.__doc__ = name, original.__doc__
        return method

    def _giving(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def method(this: Any, *args: Any, **kwargs: Any) -> Any:
            self.forks.sent_bytes(_getframe(1))
            return original(this, *args, **kwargs)

        method.__name__, method.__doc__ = name, original.__doc__
        return method

    def _sharing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def share_memory_(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            fresh = not tensor.is_shared()
            result = original(tensor, *args, **kwargs)
            if fresh:
                self._note_shared(tensor, "shared_by", _getframe(1))
            return result

        share_memory_.__doc__ = original.__doc__
        return share_memory_

    def _starting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def start(process: Any) -> Any:
            unshared = self._unshared(process)
            self.forks.starting(_getframe(1))
            result = original(process)
            if unshared and os.getpid() == self._pid:
                self._went_over(unshared, _getframe(1))
            return result

        start.__doc__ = original.__doc__
        return start

    # -- sent, then written -------------------------------------------------------------------------

    @shield
    def _noted(self, value: Any, frame: FrameType) -> None:
        if not self.recorder.active or self.recorder.paused:
            return
        for tensor in _tensors_in(value):
            if tensor.device.type == "cpu" and not tensor.is_shared() and len(self._sent) < MAX_SENT:
                site = site_of(frame)
                for side in sides_of(tensor, look=False):
                    name = in_variables(side.memory, user_frames(frame))
                    known = list(self.recorder.ledger.writes.get(side.memory, []))
                    self._sent.append((side, site, clock.now(), name, known))

    @shield
    def _written_since(self) -> None:
        for side, site, when, name, known in self._sent:
            for write in self.recorder.ledger.writes.get(side.memory, []):
                # The queue's own thread moves what is sent to shared memory: that is nobody's line.
                users = write.kind in ("op", "data") and kind_of(write.site.code) == USER
                if users and write.before >= when and write not in known and side.alive():
                    line = Line(whole_statement(write.site.place))
                    event = SharedMemory("written-after-send", Memory(name), line, Line(site.place))
                    self.recorder.emit(event)
                    break
            else:
                self._stepped_since(side, site, when, name)

    def _stepped_since(self, side: Side, sent: Site, when: int, name: str) -> None:
        """Weights that were sent and then trained: whoever gets them late gets later ones."""
        for step in self.recorder.ledger.steps_after(side.memory, when):
            if side.alive():
                line = Line(whole_statement(step.site.place))
                self.recorder.emit(SharedMemory("written-after-send", Memory(name), line, Line(sent.place)))
                return

    # -- shared by several --------------------------------------------------------------------------

    def _note_shared(self, tensor: Any, kind: str, frame: FrameType) -> None:
        journal = self.recorder.journal
        key = shared_key(tensor)
        if journal is not None and key is not None and self.recorder.active:
            journal.write(kind, key=key, line=row(site_of(frame).place))

    def _unshared(self, process: Any) -> list[torch.Tensor]:
        """Tensors among a process's arguments that are not shared yet: pickling will share them."""
        held = attributes_of(process)
        found = _tensors_in((held.get("_args"), held.get("_kwargs")))
        return [t for t in found if t.device.type == "cpu" and not t.is_shared()]

    @shield
    def _went_over(self, tensors: list[torch.Tensor], frame: FrameType) -> None:
        for tensor in tensors[:256]:
            if tensor.is_shared():
                self._note_shared(tensor, "shared_by", frame)

    @shield
    def _ddp_made(self, ddp: Any, frame: FrameType) -> None:
        journal = self.recorder.journal
        if journal is None:
            return
        for name, parameter in ddp.module.named_parameters():
            key = shared_key(parameter)
            if key is not None:
                journal.write("ddp_shared", key=key, name=name, line=row(site_of(frame).place))
                return

    # -- steps --------------------------------------------------------------------------------------

    def _before_step(self, step: OptimizerStep, made: Site | None) -> None:
        journal = self.recorder.journal
        if journal is None:
            return
        looks = self._looks.get(id(step.optimizer), 0)
        if looks >= LOOKS:
            return
        self._looks[id(step.optimizer)] = looks + 1
        site, parameters = step.site, step.parameters
        for parameter in parameters:
            key = shared_key(parameter.grad) if parameter.grad is not None else None
            if key is not None:
                journal.write("gradient_shared", key=key, line=row(site.place))
                break
        if distributed.world()[1] < 2:
            self.forks.before_step(parameters, site)


def _tensors_in(value: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    if is_tensor(value):
        yield value
    elif is_a(value, torch.nn.Module):
        yield from value.parameters()
    elif depth:
        for _, item in items_of(value, 1_000):
            yield from _tensors_in(item, depth - 1)


def shared_key(tensor: Any) -> str | None:
    """What names a piece of shared memory in all processes: its file. None for memory of this process alone."""
    try:
        if tensor.device.type != "cpu" or not tensor.is_shared():
            return None
        address = tensor.untyped_storage().data_ptr()
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                span, _, offset, device, inode = line.split()[:5]
                start, _, end = span.partition("-")
                if int(start, 16) <= address < int(end, 16):
                    return f"{device} {inode} {int(offset, 16) + address - int(start, 16)}"
    except (OSError, ValueError, RuntimeError, AttributeError):
        return None
    return None
