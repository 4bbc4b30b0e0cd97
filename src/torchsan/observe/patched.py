"""Writes seen without the native part: functions, methods, operators and setters that write note it themselves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch._ops
import torch.overrides

from torchsan import compat
from torchsan.observe.clock import clock
from torchsan.observe.constructors import layer_site
from torchsan.observe.guards import guards
from torchsan.observe.hurry import STEP, Visited, method_in_a_hurry, named_like
from torchsan.observe.ledger import Written
from torchsan.observe.objects import module_of
from torchsan.observe.outs import OutFinder
from torchsan.observe.sites import Site, is_compilers, site_of
from torchsan.observe.tensors import memory_of
from torchsan.observe.writing import (
    SETTERS,
    functions_that_write,
    inside_step,
    methods_that_write,
    several,
    worth_a_look,
    written_arguments,
)

if TYPE_CHECKING:
    from torchsan.observe.sensors.writes import WriteSensor

_getframe = sys._getframe
_version = compat.TensorBase._version.__get__


class PatchedWrites:
    def __init__(self, sensor: WriteSensor) -> None:
        self.sensor = sensor
        self.recorder = sensor.recorder
        self.outs = OutFinder(self._watch_out)
        self._visited: dict[Site, Visited] = {}
        # The same by instruction, for lines that write directly: these can be noted in a hurry.
        self._direct: dict[tuple[int, int], Visited] = {}
        self._schemas: dict[int, tuple[Any, list[tuple[int, str]]]] = {}
        # The program's own modes that see every call of torch's: what is noted in a hurry asks the tensor.
        self._modes = 0

    def install(self) -> None:
        patches = self.recorder.patches
        for name in methods_that_write():
            original = getattr(torch.Tensor, name)
            method = method_in_a_hurry(name, original, self.sensor, self._direct, self.perform)
            patches.set(torch.Tensor, name, method)
        for owner, names in functions_that_write():
            for name in names:
                patches.set(owner, name, self._function(name, getattr(owner, name)))
        for name in SETTERS:
            slot = getattr(compat.TensorBase, name)
            patches.set(torch.Tensor, name, property(slot.__get__, self._setter(name, slot.__set__), slot.__delete__))
        for kind in (torch._ops.OpOverload, torch._ops.OpOverloadPacket):
            patches.set(kind, "__call__", self._op(kind.__call__))
        patches.set(torch.overrides, "_push_mode", self._pushing(torch.overrides._push_mode))
        patches.set(torch.overrides, "_pop_mode", self._popping(torch.overrides._pop_mode))
        # `F.normalize(…, out=…)`, and so spectral norm, ends in this call.
        self._watch_out(torch, "div")
        self.outs.install(patches)
        for code in self.recorder.codes:
            self.outs.look_at(code)
        guards.listeners.append(self._nothing_direct)
        clock.when_threaded(self._nothing_direct)
        self.sensor.exposure.replaced = self._memory_replaced

    def pause(self) -> None:
        pass

    resume = pause

    def close(self) -> None:
        if self._nothing_direct in guards.listeners:
            guards.listeners.remove(self._nothing_direct)

    def _pushing(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        def _push_mode(mode: Any) -> None:
            if not _is_torchs(mode):
                self._modes += 1
                self._nothing_direct()
            original(mode)

        return _push_mode

    def _popping(self, original: Callable[[], Any]) -> Callable[[], Any]:
        def _pop_mode() -> Any:
            mode = original()
            if not _is_torchs(mode):
                self._modes = max(0, self._modes - 1)
            return mode

        return _pop_mode

    def _watch_out(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)
        if not getattr(original, "__torchsan__", False):
            self.recorder.patches.set(owner, name, self._out_function(name, original))

    # -- wrappers -----------------------------------------------------------------------------------

    def _function(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        perform = self.perform

        def function(*args: Any, **kwargs: Any) -> Any:
            first = args[0] if args else kwargs.get("input", kwargs.get("self"))
            return perform(name, original, several(first), args, kwargs, _getframe(1))

        return named_like(function, original)

    def _out_function(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        perform = self.perform

        def function(*args: Any, **kwargs: Any) -> Any:
            out = kwargs.get("out")
            if out is None:
                return original(*args, **kwargs)
            return perform(name, original, several(out), args, kwargs, _getframe(1))

        return named_like(function, original)

    def _setter(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        perform, shown = self.perform, f".{name} ="

        def setter(tensor: Any, value: Any) -> None:
            perform(shown, original, (tensor,), (tensor, value), {}, _getframe(1))

        return setter

    def _op(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.ops.aten.mul_(y, 2)`, and custom ops: the schema tells which arguments are written."""
        perform, arguments = self.perform, self._written_by

        def __call__(op: Any, /, *args: Any, **kwargs: Any) -> Any:
            written = arguments(op)
            if not written:
                return original(op, *args, **kwargs)
            given = [args[at] if 0 <= at < len(args) else kwargs.get(name) for at, name in written]
            tensors = tuple(tensor for value in given if value is not None for tensor in several(value))
            name = op.__name__.partition(".")[0]
            return perform(name, original, tensors, (op, *args), kwargs, _getframe(1))

        return named_like(__call__, original)

    def _written_by(self, op: Any) -> list[tuple[int, str]]:
        known = self._schemas.get(id(op))
        if known is None:
            known = self._schemas[id(op)] = (op, _written_by(op))
        return known[1]

    # -- recording ----------------------------------------------------------------------------------

    def perform(
        self,
        name: str,
        original: Callable[..., Any],
        written: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType,
    ) -> Any:
        """Do the write and log it. Whatever the write raises goes on to the program."""
        if guards.on:
            guards.before_write(written, frame)
        elif inside_step(frame.f_code):
            self._direct[id(frame.f_code), frame.f_lasti] = STEP
            return original(*args, **kwargs)
        noted = self._before(name, original, written, args, kwargs, frame)
        try:
            result = original(*args, **kwargs)
        except (RuntimeError, NotImplementedError) as error:
            self.sensor.refused(name, written, error, frame)
            raise
        if noted is not None:
            self._after(name, noted)
        return result

    def _before(
        self,
        name: str,
        original: Callable[..., Any],
        written: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType,
    ) -> Any:
        if not self.recorder.active or self.recorder.paused or inside_step(frame.f_code) or is_compilers(frame.f_code):
            return None
        try:
            with torch._C.DisableTorchFunction():  # our questions are not for modes and subclasses to see
                return self._noted(name, original, written, args, kwargs, frame)
        except Exception as error:
            self.recorder.give_up(error)
            return None

    def _noted(
        self,
        name: str,
        original: Callable[..., Any],
        written: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType,
    ) -> Any:
        before = clock.now()
        found = [(tensor, memory) for tensor in written if (memory := memory_of(tensor)) is not None]
        if not found:
            return None
        visited = self._visit(frame)
        exposure, token = self.sensor.exposure, None
        notes = [
            (tensor, memory, exposure.before_write(memory, tensor, before) if exposure.exposed else None)
            for tensor, memory in found
        ]
        if worth_a_look(visited.count) or self.sensor.aliases.follows(visited.site, visited.count - 1):
            token = self.sensor.look(name, visited.site, written, args, frame, visited.count, kwargs, original)
        self._hurry(visited)
        return visited.site, before, notes, token, frame

    def _visit(self, frame: FrameType) -> Visited:
        site = site_of(frame)
        visited = self._visited.get(site)
        if visited is None:
            visited = self._visited[site] = Visited(site)
        else:
            visited.count += 1 + visited.span - visited.left
            visited.pass_until(0)
        itself = site.library is None and site.code is frame.f_code and site.lasti == frame.f_lasti
        if itself and not guards.on and not clock.threaded and not self._modes:
            self._direct[id(frame.f_code), frame.f_lasti] = visited
        return visited

    def _hurry(self, visited: Visited) -> None:
        """Up to the next visit that deserves a look, a write of this line is noted in a hurry."""
        count = visited.count
        if count >= 4 and not self.sensor.aliases.follows(visited.site, count):
            visited.pass_until((1 << count.bit_length()) - count - 1)

    def _nothing_direct(self) -> None:
        """Every write has to be looked at: somebody wants to know before it, or threads are to be told apart."""
        self._direct.clear()

    def _memory_replaced(self) -> None:
        """A tensor has got other memory: what a line wrote last is no longer known by the tensor."""
        for visited in self._visited.values():
            visited.before = -1

    def _after(self, name: str, noted: Any) -> None:
        try:
            with torch._C.DisableTorchFunction():
                self._log(name, *noted)
        except Exception as error:
            self.recorder.give_up(error)
        token = noted[3]
        if token is not None:
            self.sensor.looked(token)

    def _log(self, name: str, site: Site, before: int, notes: list[Any], _token: Any, frame: FrameType) -> None:
        maker = layer_site(frame) if site.library is not None else None
        for tensor, memory, silent in notes:
            write = Written(before, site, name, _version_of(tensor), "op", maker=maker)
            self.recorder.ledger.log.add(memory, write)
            now = memory_of(tensor)
            if now != memory and now is not None:
                # `set_` and its kin: whoever saved the tensor finds the new memory.
                self.recorder.ledger.log.add(now, write)
                self._memory_replaced()
            if silent is not None:
                self.sensor.exposure.after_write(memory, tensor, silent, write._replace(kind="data"))


def _is_torchs(mode: Any) -> bool:
    """`with torch.device(…)` and its kin look at nothing."""
    return module_of(mode).partition(".")[0] == "torch"


def _version_of(tensor: Any) -> int:
    try:
        return int(_version(tensor))
    except Exception:
        return 0  # inference tensors count no versions


def _written_by(op: Any) -> list[tuple[int, str]]:
    """Of an op, or of a name with several overloads: then whatever one of them writes."""
    if type(op) is torch._ops.OpOverloadPacket:
        schemas = [getattr(op, overload)._schema for overload in op.overloads()]
        return list(dict.fromkeys(entry for schema in schemas for entry in written_arguments(schema)))
    return written_arguments(op._schema) if type(op) is torch._ops.OpOverload else []
