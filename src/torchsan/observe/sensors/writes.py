"""Watches in-place writes: methods, operators, functions, `out=`, `inplace=True` layers. Paid per write, not per op."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch

from torchsan import compat
from torchsan.model.events import WriteKind
from torchsan.observe import constructors
from torchsan.observe.clock import clock
from torchsan.observe.constructors import layer_site
from torchsan.observe.guards import guards
from torchsan.observe.ledger import Written
from torchsan.observe.names import in_variables
from torchsan.observe.objects import items_of
from torchsan.observe.outs import OutFinder
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.refusals import refused, whole_statement
from torchsan.observe.sensors.aliases import AliasWatch
from torchsan.observe.sites import TORCH, Site, kind_of, site_of, user_frames
from torchsan.observe.tensors import byte_range, memory_of

if TYPE_CHECKING:
    from torchsan.observe.sensors.exposure import ExposureSensor

_getframe = sys._getframe
# Methods that end in an underscore and yet write no element of the tensor.
NOT_WRITES = {"requires_grad_", "detach_", "share_memory_", "retain_grad_", "rename_", "refine_names_"}
OPERATORS = (
    *(
        "__iadd__",
        "__isub__",
        "__imul__",
        "__idiv__",
        "__itruediv__",
        "__ifloordiv__",
        "__imod__",
        "__ipow__",
    ),
    *("__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__", "__setitem__"),
)
_OPTIM = os.path.join(os.path.dirname(torch.__file__), "optim") + os.sep
_DONE_BY_STEP: dict[int, bool] = {}


def inside_step(code: CodeType) -> bool:
    """Code of torch's own optimizers: one `step()` is one event, told by the optimizer sensor."""
    known = _DONE_BY_STEP.get(id(code))
    if known is None:
        path = code.co_filename
        known = kind_of(code) == TORCH and path.startswith(_OPTIM) and not path.endswith("swa_utils.py")
        _DONE_BY_STEP[id(code)] = known
    return known


class WriteSensor:
    def __init__(self, recorder: Recorder, exposure: ExposureSensor) -> None:
        self.recorder = recorder
        self.ledger = recorder.ledger
        self.exposure = exposure
        self.aliases = AliasWatch(recorder)
        self.outs = OutFinder(self._watch_out)
        self._seen: dict[Site, int] = {}
        self._eval_statistics: set[int] = set()

    # -- patches ------------------------------------------------------------------------------------

    def install(self) -> None:
        patches = self.recorder.patches
        for name in dir(compat.TensorBase):
            if name.endswith("_") and not name.startswith("_") and name not in NOT_WRITES:
                patches.set(torch.Tensor, name, self._method(name, getattr(torch.Tensor, name)))
        for name in OPERATORS:
            patches.set(torch.Tensor, name, self._method(name, getattr(torch.Tensor, name)))
        for owner, names in _function_homes():
            for name in names:
                patches.set(owner, name, self._function(name, getattr(owner, name)))
        patches.set(torch, "batch_norm", self._batch_norm(torch.batch_norm))
        # `F.normalize(…, out=…)`, and so spectral norm, ends in this call.
        self._watch_out(torch, "div")
        self.outs.install(patches)
        for code in self.recorder.codes:
            self.outs.look_at(code)
        constructors.install(patches)

    def close(self) -> None:
        pass

    def _watch_out(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)
        if not getattr(original, "__torchsan__", False):
            self.recorder.patches.set(owner, name, self._out_function(name, original))

    # -- wrappers -----------------------------------------------------------------------------------

    def _method(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        perform = self.perform

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            frame = _getframe(1)
            if _DONE_BY_STEP.get(id(frame.f_code)) and not guards.on:
                return original(self, *args, **kwargs)
            return perform(name, original, (self,), (self, *args), kwargs, frame)

        return _named_like(method, original)

    def _function(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        perform = self.perform

        def function(*args: Any, **kwargs: Any) -> Any:
            frame = _getframe(1)
            first = args[0] if args else kwargs.get("input", kwargs.get("self"))
            written = several(first)
            return perform(name, original, written, args, kwargs, frame)

        return _named_like(function, original)

    def _out_function(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        perform = self.perform

        def function(*args: Any, **kwargs: Any) -> Any:
            out = kwargs.get("out")
            if out is None:
                return original(*args, **kwargs)
            written = several(out)
            return perform(name, original, written, args, kwargs, _getframe(1))

        return _named_like(function, original)

    def _batch_norm(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def batch_norm(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if len(args) >= 6 and args[3] is not None:
                self._note_statistics(args[3], args[4], bool(args[5]), _getframe(1))
            return result

        return _named_like(batch_norm, original)

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
        if inside_step(frame.f_code) and not guards.on:
            return original(*args, **kwargs)
        noted = self._before(name, written, args, frame)
        try:
            result = original(*args, **kwargs)
        except (RuntimeError, NotImplementedError) as error:
            self._refused(name, written, error, frame)
            raise
        if noted is not None:
            self._after(name, noted)
        return result

    def _before(self, name: str, written: tuple[Any, ...], args: tuple[Any, ...], frame: FrameType) -> Any:
        if guards.on:
            guards.before_write(written, frame)
        if not self.recorder.active or self.recorder.paused:
            return None
        try:
            site = site_of(frame)
            before = clock.now()
            notes = []
            for tensor in written:
                memory = memory_of(tensor)
                if memory is None:
                    continue
                silent = self.exposure.before_write(memory, tensor) if self.exposure.exposed else None
                notes.append((tensor, memory, silent))
            if not notes:
                return None
            token = None
            seen = self._seen.get(site, 0)
            if seen < 4 and not compat.is_tracing():
                self._seen[site] = seen + 1
                if seen == 0 and site.library is not None:
                    self._remember_name(site, notes[0][1], frame)
                token = self.aliases.before(name, site, notes[0][0], notes[0][1], args, frame, seen)
            return site, before, notes, token, frame
        except Exception as error:
            self.recorder.give_up(error)
            return None

    def _remember_name(self, site: Site, memory: int, frame: FrameType) -> None:
        """What the user calls the tensor that a library writes: the line alone does not tell."""
        name = in_variables(memory, user_frames(frame)[:2])
        if name:
            self.recorder.names[whole_statement(site.place)] = name

    @shield
    def _after(self, name: str, noted: Any) -> None:
        site, before, notes, token, frame = noted
        for tensor, memory, silent in notes:
            try:
                version = tensor._version
            except Exception:
                version = 0  # inference tensors count no versions
            maker = layer_site(frame) if site.library is not None else None
            self.ledger.add(memory, Written(before, site, name, version, "op", maker=maker))
            if silent is not None:
                self.exposure.after_write(memory, tensor, silent, Written(before, site, name, version, "data"), frame)
        if token is not None:
            self.aliases.after(token)

    @shield
    def _refused(self, name: str, written: tuple[Any, ...], error: Exception, frame: FrameType) -> None:
        if self.recorder.active:
            refused(self.recorder, error, frame, op=name, tensor=written[0] if written else None)

    @shield
    def _note_statistics(self, mean: Any, variance: Any, training: bool, frame: FrameType) -> None:
        """Batch norm writes its statistics without a version; only what an eval forward saved can be hurt."""
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


def _function_homes() -> list[tuple[Any, list[str]]]:
    """Where torch keeps functions that write their first argument."""
    functional = torch.nn.functional
    torch_names = [n for n in dir(torch._C._VariableFunctions) if n.endswith("_") and not n.startswith("__")]
    public = [n for n in torch_names if hasattr(torch, n) and n not in NOT_WRITES]
    return [
        (torch, public),
        (torch._VF, [n for n in public if not n.startswith("_")]),
        (torch._C._nn, [n for n in dir(torch._C._nn) if n.endswith("_") and not n.startswith("_")]),
        (functional, [n for n in dir(functional) if n.endswith("_") and not n.startswith("_")]),
    ]


def several(value: Any) -> tuple[Any, ...]:
    """One tensor, or those in a list of them."""
    return tuple(item for _, item in items_of(value)) or (value,)


def _named_like(wrapper: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    wrapper.__name__ = getattr(original, "__name__", wrapper.__name__)
    wrapper.__qualname__ = getattr(original, "__qualname__", wrapper.__name__)
    wrapper.__doc__ = original.__doc__
    wrapper.__torchsan__ = True  # type: ignore[attr-defined]
    wrapper.__wrapped__ = original  # type: ignore[attr-defined]
    return wrapper
