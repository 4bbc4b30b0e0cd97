"""Writes noted in a hurry: a method that knows its callers, and leaves to others what needs a closer look."""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch

from torchsan import compat
from torchsan.observe.clock import clock
from torchsan.observe.sites import Site

if TYPE_CHECKING:
    from torchsan.observe.sensors.writes import WriteSensor

_getframe = sys._getframe
_storage = compat.TensorBase.untyped_storage
_version = compat.TensorBase._version.__get__


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


MISSING: Any = object()
# Lines of torch's own optimizers, of which nothing is noted.
STEP: Any = Visited(None)  # type: ignore[arg-type]


def method_in_a_hurry(
    name: str,
    original: Callable[..., Any],
    sensor: WriteSensor,
    direct: dict[tuple[int, int], Visited],
    perform: Callable[..., Any],
) -> Callable[..., Any]:
    """The method in place of `original`. Lines that are in `direct` are noted here, all others by `perform`."""
    log = sensor.recorder.ledger.log
    raw, add, refused = log.raw, log.add, sensor.refused
    exposed, quietly, version_of = sensor.exposure.exposed, sensor.exposure.before_write, _version
    now, thread, home = compat.thread_sequence, get_ident, clock.home
    storage, plain, parameter = _storage, torch.Tensor, torch.nn.Parameter

    # The first argument has a name of its own: a call without `*` is cheaper, and most writes have one or none.
    def method(self: Any, other: Any = MISSING, /, *args: Any, **kwargs: Any) -> Any:
        frame = _getframe(1)
        visited = direct.get((id(frame.f_code), frame.f_lasti))
        if visited is None or not visited.left or thread() != home:
            given = (self, *args) if other is MISSING else (self, other, *args)
            if visited is STEP:
                return original(*given, **kwargs)
            return perform(name, original, (self,), given, kwargs, frame)
        visited.left -= 1
        before = now()
        memory: int | None
        if visited.before == before and visited.reference() is self:
            # Written by this line already, and no node has been made since that could tell the two apart.
            memory = 0
        else:
            kind = type(self)
            try:
                memory = storage(self)._cdata if kind is plain or kind is parameter else None
            except Exception:
                memory = None  # none of its own
            if memory is None or (memory in exposed and visited.quiet != (memory, before)):
                if memory is None or quietly(memory, self, before) is not None:
                    given = (self, *args) if other is MISSING else (self, other, *args)
                    return perform(name, original, (self,), given, kwargs, frame)
                visited.quiet = (memory, before)
        try:
            if kwargs or len(args) > 1:
                given = (self, *args) if other is MISSING else (self, other, *args)
                result = original(*given, **kwargs)
            elif args:
                result = original(self, other, args[0])
            else:
                result = original(self) if other is MISSING else original(self, other)
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


def named_like(wrapper: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    wrapper.__name__ = getattr(original, "__name__", wrapper.__name__)
    wrapper.__qualname__ = getattr(original, "__qualname__", wrapper.__name__)
    wrapper.__doc__ = original.__doc__
    wrapper.__torchsan__ = True  # type: ignore[attr-defined]
    wrapper.__wrapped__ = original  # type: ignore[attr-defined]
    return wrapper
