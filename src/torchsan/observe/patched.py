"""Writes seen without the native part: functions, methods, operators and setters that write note it themselves."""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch
import torch._ops

from torchsan import compat
from torchsan.observe.clock import clock
from torchsan.observe.constructors import layer_site
from torchsan.observe.guards import guards
from torchsan.observe.ledger import Written
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
_storage = compat.TensorBase.untyped_storage
_version = compat.TensorBase._version.__get__
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _nothing() -> None:
    return None


class Visited:
    """A line of the user's own code that writes, and how often it has."""

    __slots__ = ("before", "count", "left", "quiet", "reference", "site", "span", "tensor")

    def __init__(self, site: Site) -> None:
        self.site = site
        # Visits up to the last that was looked at, how many may now pass in a hurry, and how many of them are left.
        self.count = self.span = self.left = 0
        # What the line wrote last: its address, and once it has come twice, a reference; and when that was.
        self.tensor = 0
        self.reference: Callable[[], Any] = _nothing
        self.before = -1
        # The memory that nothing held, and when: nothing can have saved it before the next node.
        self.quiet = (0, -1)

    def pass_until(self, span: int) -> None:
        """Let so many visits pass before the next look."""
        self.span = self.left = span


# Lines of torch's own optimizers, of which nothing is noted.
STEP: Any = Visited(None)  # type: ignore[arg-type]


class PatchedWrites:
    def __init__(self, sensor: WriteSensor) -> None:
        self.sensor = sensor
        self.recorder = sensor.recorder
        self.outs = OutFinder(self._watch_out)
        self._visited: dict[Site, Visited] = {}
        # The same by instruction, for lines that write directly: these can be noted in a hurry.
        self._direct: dict[tuple[int, int], Visited] = {}
        self._schemas: dict[int, tuple[Any, list[tuple[int, str]]]] = {}

    def install(self) -> None:
        patches = self.recorder.patches
        for name in methods_that_write():
            patches.set(torch.Tensor, name, self._method(name, getattr(torch.Tensor, name)))
        for owner, names in functions_that_write():
            for name in names:
                patches.set(owner, name, self._function(name, getattr(owner, name)))
        for name in SETTERS:
            slot = getattr(compat.TensorBase, name)
            patches.set(torch.Tensor, name, property(slot.__get__, self._setter(name, slot.__set__), slot.__delete__))
        for kind in (torch._ops.OpOverload, torch._ops.OpOverloadPacket):
            patches.set(kind, "__call__", self._op(kind.__call__))
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

    def _watch_out(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)
        if not getattr(original, "__torchsan__", False):
            self.recorder.patches.set(owner, name, self._out_function(name, original))

    # -- wrappers -----------------------------------------------------------------------------------

    def _method(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        perform, direct, refused = self.perform, self._direct, self.sensor.refused
        raw, add = self.recorder.ledger.log.raw, self.recorder.ledger.log.add
        exposed, quietly, version_of = self.sensor.exposure.exposed, self.sensor.exposure.before_write, _version
        now, thread, home = compat.thread_sequence, get_ident, clock.home

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            frame = _getframe(1)
            visited = direct.get((id(frame.f_code), frame.f_lasti))
            if visited is None or not visited.left or thread() != home:
                if visited is STEP:
                    return original(self, *args, **kwargs)
                return perform(name, original, (self,), (self, *args), kwargs, frame)
            visited.left -= 1
            before = now()
            if visited.before == before and visited.reference() is self:
                # Written by this line already, and no node has been made since that could tell the two apart.
                memory = 0
            elif type(self) in _PLAIN:
                try:
                    memory = _storage(self)._cdata
                except Exception:
                    memory = 0  # none of its own
                if memory in exposed and visited.quiet != (memory, before):
                    if quietly(memory, self, before) is not None:
                        return perform(name, original, (self,), (self, *args), kwargs, frame)
                    visited.quiet = (memory, before)
            else:
                return perform(name, original, (self,), (self, *args), kwargs, frame)
            try:
                result = original(self, *args, **kwargs) if kwargs else original(self, *args)
            except (RuntimeError, NotImplementedError) as error:
                refused(name, (self,), error, frame)
                raise
            if memory:
                try:
                    write = (before, visited.site, name, version_of(self))
                except Exception:
                    return result  # inference counts no versions
                known = raw.get(memory)
                if known is None:
                    add(memory, write)
                else:
                    known.append(write)
                visited.before = before
                if visited.tensor == id(self):
                    visited.reference = ref(self)
                else:
                    visited.tensor, visited.reference = id(self), _nothing
            return result

        return named_like(method, original)

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
        except Exception as error:
            self.recorder.give_up(error)
            return None

    def _visit(self, frame: FrameType) -> Visited:
        site = site_of(frame)
        visited = self._visited.get(site)
        if visited is None:
            visited = self._visited[site] = Visited(site)
        else:
            visited.count += 1 + visited.span - visited.left
            visited.pass_until(0)
        itself = site.library is None and site.code is frame.f_code and site.lasti == frame.f_lasti
        if itself and not guards.on and not clock.threaded:
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
        site, before, notes, token, frame = noted
        try:
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
        except Exception as error:
            self.recorder.give_up(error)
        if token is not None:
            self.sensor.looked(token)


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


def named_like(wrapper: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    wrapper.__name__ = getattr(original, "__name__", wrapper.__name__)
    wrapper.__qualname__ = getattr(original, "__qualname__", wrapper.__name__)
    wrapper.__doc__ = original.__doc__
    wrapper.__torchsan__ = True  # type: ignore[attr-defined]
    wrapper.__wrapped__ = original  # type: ignore[attr-defined]
    return wrapper
