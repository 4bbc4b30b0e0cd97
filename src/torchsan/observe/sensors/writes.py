"""Watches in-place writes, wherever they come from. Paid per write, not per op.

Two ways lead here. The native part sees each write in torch's dispatcher (`dispatched`); where it is not built, the
functions that write are replaced by ones that note it (`patched`). Both keep the writes in the ledger, and both let
the few first visits of a line be looked at closely.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import torch

from torchsan import compat, compat_compile
from torchsan.model.events import WriteKind
from torchsan.observe import constructors, native
from torchsan.observe.clock import clock
from torchsan.observe.dispatched import DispatchedWrites
from torchsan.observe.hurry import named_like
from torchsan.observe.ledger import Written
from torchsan.observe.names import in_variables
from torchsan.observe.objects import is_honest, is_tensor, module_of, sequence_of
from torchsan.observe.patched import PatchedWrites
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.refusals import refused, whole_statement
from torchsan.observe.sensors.aliases import AliasWatch
from torchsan.observe.sites import Site, site_of, user_frames
from torchsan.observe.tensors import byte_range, memory_of

if TYPE_CHECKING:
    from torchsan.observe.sensors.exposure import ExposureSensor

_getframe = sys._getframe
_FAMILIAR = {"builtins", "torch", "numpy", "collections", "typing"}


class Source(Protocol):
    """One of the two ways in which writes are seen."""

    def install(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


def _can_be_asked(operand: Any) -> bool:
    """What is of a class of the program's own answers for itself (is it equal? what is its shape?): left alone."""
    return all(
        is_honest(type(part)) if is_tensor(part) else module_of(part).partition(".")[0] in _FAMILIAR
        for part in (operand, *sequence_of(operand))
    )


class WriteSensor:
    def __init__(self, recorder: Recorder, exposure: ExposureSensor) -> None:
        self.recorder = recorder
        self.ledger = recorder.ledger
        self.exposure = exposure
        self.aliases = AliasWatch(recorder)
        self._eval_statistics: set[int] = set()
        self.source: Source = PatchedWrites(self)

    def install(self) -> None:
        patches = self.recorder.patches
        part = native.load()
        if part is not None and DispatchedWrites.is_free():
            self.source = DispatchedWrites(self, part)
        self.source.install()
        patches.set(torch, "batch_norm", self._batch_norm(torch.batch_norm))
        constructors.install(patches)

    def pause(self) -> None:
        self.source.pause()

    def resume(self) -> None:
        self.source.resume()

    def close(self) -> None:
        self.source.close()

    def look(
        self,
        op: str,
        site: Site,
        tensors: tuple[Any, ...],
        args: tuple[Any, ...],
        frame: FrameType,
        seen: int,
        kwargs: dict[str, Any] | None = None,
        original: Callable[..., Any] | None = None,
    ) -> Any:
        """A close look before a write, on a few visits of a line. What it returns is for `looked`, after the write.

        `original`: what does the write, if its arguments are known.
        """
        if not self.recorder.active or self.recorder.paused or compat.is_tracing():
            return None
        held = compat_compile.hold()
        try:
            with torch._C.DisableTorchFunction():  # none of this is for the program's own modes to see
                found = ((t, m) for t in tensors if (m := memory_of(t)) is not None)
                tensor, memory = next(found, (None, None))
                if memory is None or not all(map(_can_be_asked, args)):
                    return None
                if seen == 0 and site.library is not None:
                    self._remember_name(site, memory, frame)
                return self.aliases.before(op, site, tensor, memory, args, frame, seen, kwargs, original)
        except Exception as error:
            self.recorder.give_up(error)
            return None
        finally:
            compat_compile.release(held)

    @shield
    def looked(self, token: Any) -> None:
        self.aliases.after(token)

    def _remember_name(self, site: Site, memory: int, frame: FrameType) -> None:
        """What the user calls the tensor that a library writes: the line alone does not tell."""
        name = in_variables(memory, user_frames(frame)[:2])
        if name:
            self.recorder.names[whole_statement(site.place)] = name

    @shield
    def refused(self, name: str, written: tuple[Any, ...], error: Exception, frame: FrameType) -> None:
        # What a compiled region is refused has its line inside, and is told by who knows it.
        if self.recorder.active and not self.recorder.paused:
            refused(self.recorder, error, frame, op=name, tensor=written[0] if written else None)

    # -- statistics of batch norm, which are written without a version ------------------------------

    def _batch_norm(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def batch_norm(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if len(args) >= 6 and args[3] is not None and type(args[5]) is bool:
                self._note_statistics(args[3], args[4], args[5], _getframe(1))
            return result

        return named_like(batch_norm, original)

    @shield
    def _note_statistics(self, mean: Any, variance: Any, training: bool, frame: FrameType) -> None:
        """Only what an eval forward saved can be hurt."""
        if not self.recorder.active or self.recorder.paused:
            return
        memory = memory_of(mean)
        if memory is None:
            return
        if not training:
            if torch.is_grad_enabled():
                self._eval_statistics.add(memory)
        elif memory in self._eval_statistics:
            site, before = site_of(frame), clock.now()
            for buffer in (mean, variance):
                key = memory_of(buffer)
                if key is not None:
                    # The training forward has made its own node by now; the write came before that.
                    self.silent_write(key, buffer, "batch_norm", "batch_norm", site, before - 1)

    def silent_write(
        self, memory: int, tensor: torch.Tensor, op: str, kind: WriteKind, site: Site, before: int
    ) -> None:
        write = Written(before, site, op, 0, kind, *byte_range(tensor))
        self.ledger.add_silent(memory, write)
