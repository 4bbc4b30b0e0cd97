"""Watches memory that becomes reachable behind the version counter: `.data`, NumPy, DLPack, storages.

A write through `.data` is seen as a write; what matters is that autograd does not see it. A write through
NumPy is not seen at all, so the contents of just that memory are compared: when the first node of a graph is
made after the exposure, and again before backward.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from torchsan import compat
from torchsan.model.events import Line, Memory, ParameterRewritten, Write
from torchsan.model.span import Place
from torchsan.observe.clock import clock
from torchsan.observe.ledger import Written
from torchsan.observe.names import in_modules, local_names
from torchsan.observe.objects import is_a, is_exactly, is_tensor, tensors_of
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.refusals import callers_of, right_hand_side, whole_statement, written_name
from torchsan.observe.sites import OURS, USER, Site, kind_of, site_of, user_frames
from torchsan.observe.tensors import (
    SMALL_BYTES,
    byte_range,
    changed_since,
    fingerprint_bytes,
    is_plain,
    looked_at,
    memory_of,
)

if TYPE_CHECKING:
    from torchsan.observe.dispatched import DispatchedWrites
    from torchsan.observe.sensors.graph import GraphSensor

_getframe = sys._getframe
MAX_EXPOSED = 2_000
# Larger foreign memory (whole data sets) is not compared at every step.
MAX_COMPARED_BYTES = 64 << 20


@dataclass(slots=True)
class Foreign:
    """Memory that NumPy or another library can write."""

    storage: compat.WeakStorage
    start: int
    end: int
    site: Site
    how: str
    before: int
    contents: object

    def look(self) -> object:
        """The contents now; None once the memory is gone."""
        storage = self.storage.get()
        return None if storage is None else fingerprint_bytes(storage, self.start, self.end)


class ExposureSensor:
    def __init__(self, recorder: Recorder, graph: GraphSensor) -> None:
        self.recorder = recorder
        self.ledger = recorder.ledger
        self.graph = graph
        graph.exposure = self
        # Memory of which `.data` was taken: the tensor whose version should have counted the writes.
        # While we know the memory, weakly, no other gets its number: the tensor may be given another one.
        self.exposed: dict[int, tuple[weakref.ref[torch.Tensor], Site, compat.WeakStorage]] = {}
        # The same by tensor, and what the last silent write of a memory was: a loop says the same again and again.
        self._by_tensor: dict[int, weakref.ref[torch.Tensor]] = {}
        self._told: dict[int, tuple[int, int, int]] = {}
        self._native: DispatchedWrites | None = None
        # Called when a tensor is given other memory.
        self.replaced: Callable[[], None] = lambda: None
        self.foreign: dict[int, Foreign] = {}
        # Parameters whose data a forward has replaced, with the line.
        self._rewritten: dict[tuple[int, Place], weakref.ref[torch.Tensor]] = {}

    # -- patches ------------------------------------------------------------------------------------

    def install(self) -> None:
        patches = self.recorder.patches
        base: Any = compat.TensorBase.data
        patches.set(torch.Tensor, "data", property(self._get_data(base), self._set_data(base), base.__delete__))
        for name in ("numpy", "__array__", "__dlpack__", "untyped_storage", "storage"):
            patches.set(torch.Tensor, name, self._exposing(name, getattr(torch.Tensor, name)))
        for name in ("from_numpy", "from_dlpack", "frombuffer", "as_tensor"):
            patches.set(torch, name, self._importing(name, getattr(torch, name)))

    def serve_natively(self, native: DispatchedWrites) -> None:
        """Let the native part see reads of `.data`, and judge the writes through it."""
        self._native = native
        base: Any = compat.TensorBase.data
        getter, setter = native.part.data_getter(base), self._set_data(base)
        self.recorder.patches.set(torch.Tensor, "data", property(getter, setter, base.__delete__))

    def close(self) -> None:
        self.exposed.clear()
        self._by_tensor.clear()
        self.foreign.clear()

    # -- .data --------------------------------------------------------------------------------------

    def _get_data(self, base: Any) -> Callable[[Any], Any]:
        known, get = self._by_tensor, base.__get__

        def data(tensor: Any) -> Any:
            result = get(tensor)
            seen = known.get(id(tensor))
            if (seen is None or seen() is not tensor) and self.recorder.active:
                self._exposed_by_data(tensor, _getframe(1))
            return result

        return data

    @shield
    def _exposed_by_data(self, tensor: Any, frame: FrameType) -> None:
        memory = memory_of(tensor)
        if memory is None:
            return
        if len(self.exposed) >= MAX_EXPOSED:
            self.exposed.clear()
            self._by_tensor.clear()
        reference = weakref.ref(tensor)
        self._by_tensor[id(tensor)] = reference
        known = self.exposed[memory][0]() if memory in self.exposed else None
        # Of several tensors on one memory the one that takes part in a graph counts.
        if known is None or known is tensor or (tensor.requires_grad and not known.requires_grad):
            self.exposed[memory] = (reference, site_of(frame), compat.WeakStorage(tensor))

    def _set_data(self, base: Any) -> Callable[[Any, Any], None]:
        def data(tensor: Any, value: Any) -> None:
            before, memory = clock.now(), memory_of(tensor)
            base.__set__(tensor, value)
            self._by_tensor.pop(id(tensor), None)
            # `p.data *= 2` writes in place and then assigns the same memory to itself.
            again = memory_of(tensor) == memory
            if not again:
                self.replaced()
                self._data_replaced(tensor, before, _getframe(1))
            if is_a(tensor, torch.nn.Parameter) and tensor is not value:
                self._data_set(tensor, value, _getframe(1), memory)

        return data

    @shield
    def _data_set(self, tensor: Any, value: Any, frame: FrameType, before: int | None) -> None:
        memory = memory_of(tensor)
        if not self.recorder.active or self.recorder.paused or self.recorder.aliases is None or memory is None:
            return
        if is_plain(tensor) and is_plain(value):
            self.recorder.aliases.data_set(tensor, value, memory, frame, before)

    @shield
    def _data_replaced(self, tensor: Any, before: int, frame: FrameType) -> None:
        """`p.data = t`: nodes that saved the leaf `p` itself now hold `t`'s memory."""
        if not self.recorder.active or self.recorder.paused or not is_plain(tensor) or not compat.is_leaf(tensor):
            return
        memory = memory_of(tensor)
        if memory is None or not tensor.requires_grad:
            return
        site = site_of(frame)
        self.ledger.add_silent(memory, Written(before, site, ".data =", 0, "set_data", *byte_range(tensor)))
        if site.library is None:
            self._parameter_rewritten(tensor, memory, site, frame)

    def _parameter_rewritten(self, tensor: Any, memory: int, site: Site, frame: FrameType) -> None:
        """A forward that replaces the data of one of its own parameters undoes what the optimizer learnt."""
        if not is_a(tensor, torch.nn.Parameter):
            return
        module = _module_in_forward(frame, tensor)
        if module is None:
            return
        owned = in_modules(memory, user_frames(frame))
        name = written_name(site.place) or (owned.name if owned else "")
        place = whole_statement(site.place)
        if name and name in right_hand_side(place):
            return  # `w.data = w.data * mask` projects what was learnt, it does not replace it
        # Once is a start from the first batch; only a forward that does it again undoes what was learnt in between.
        known = self._rewritten.get((id(tensor), place))
        self._rewritten[id(tensor), place] = weakref.ref(tensor)
        if known is None or known() is not tensor:
            return
        line = Line(place)
        write = Write(".data =", "set_data", line, callers=callers_of(frame))
        self.recorder.emit(ParameterRewritten(Memory(name, "parameter"), write, type(module).__name__))

    def before_write(self, memory: int, tensor: Any, before: int) -> tuple[int, object] | None:
        """For a write to exposed memory that something may have saved: the version to count it, and the contents."""
        known = self.exposed.get(memory)
        original = known[0]() if known is not None else None
        if original is None or original is tensor or not compat.may_be_saved(original, memory):
            return None
        if not is_plain(tensor) or self._told.get(memory) == (before, tensor.data_ptr(), tensor.numel()):
            return None
        return original._version, looked_at(tensor)

    def after_write(self, memory: int, tensor: Any, noted: tuple[int, object], write: Written) -> None:
        version, contents = noted
        known = self.exposed.get(memory)
        original = known[0]() if known is not None else None
        if original is None or original._version != version:
            return  # autograd has counted this one
        changed = changed_since(tensor, contents)
        if changed is not None:
            start, end = changed
            self._told[memory] = (write.before, tensor.data_ptr(), tensor.numel())
            self.ledger.add_silent(memory, write._replace(start=start, end=end))

    def before_region(self, memory: int, tensor: Any) -> object | None:
        """The contents of memory of which the native part saw `.data` taken, before a compiled region writes it."""
        seen = self._native is not None and self._native.exposed_at(memory) is not None
        return looked_at(tensor) if seen and is_plain(tensor) else None

    def exposed_at(self, memory: int) -> Line | None:
        foreign = self.foreign.get(memory)
        site = foreign.site if foreign is not None else None
        if site is None and memory in self.exposed:
            site = self.exposed[memory][1]
        if site is None and self._native is not None:
            site = self._native.exposed_at(memory)
        return Line(site.place, site.library_place) if site is not None else None

    # -- memory shared with other libraries ---------------------------------------------------------

    def _exposing(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def method(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(tensor, *args, **kwargs)
            frame = _getframe(1)
            if kind_of(frame.f_code) != OURS:
                self._expose(tensor, name, frame)
            return result

        method.__name__, method.__doc__ = name, original.__doc__
        return method

    def _importing(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if not (args and (is_tensor(args[0]) or is_exactly(args[0], (int, float, bool, list, tuple)))):
                self._expose(result, name, _getframe(1))
            return result

        function.__name__, function.__doc__ = name, original.__doc__
        return function

    @shield
    def _expose(self, tensor: Any, how: str, frame: FrameType) -> None:
        if not self.recorder.active or self.recorder.paused or not is_plain(tensor):
            return
        if kind_of(frame.f_code) != USER and how in ("untyped_storage", "storage"):
            return  # libraries look at storages to name memory, not to write it
        memory = memory_of(tensor)
        size = tensor.numel() * tensor.element_size()
        if memory is None or size == 0 or size > MAX_COMPARED_BYTES or compat.is_tracing():
            return
        if tensor.device.type != "cpu":
            return
        if self._native is not None and how in ("untyped_storage", "storage"):
            self._native.expose(tensor)  # `storage[0] = 7` ends in an op, which tells its own line
        self._forget_dead()
        start, end = byte_range(tensor)
        storage = compat.WeakStorage(tensor)
        foreign = Foreign(storage, start, end, site_of(frame), how, clock.now(), None)
        foreign.contents = foreign.look()
        self.foreign[memory] = foreign
        if self.recorder.aliases is not None:
            self.recorder.aliases.handed_out(tensor, foreign.site, how, frame)
        self.graph.snapshot_at_next_nodes(foreign.site)

    def _forget_dead(self) -> None:
        for memory, foreign in list(self.foreign.items()):
            if foreign.storage.get() is None:
                del self.foreign[memory]

    def look(self) -> None:
        """Compare exposed memory with what it held at the last look; a node may be about to save it now.

        Contents that changed with no write of torch's in between were changed from outside, after every node that
        had been made by the last look.
        """
        before = clock.now()
        self._forget_dead()
        for memory, foreign in self.foreign.items():
            now = foreign.look()
            if now != foreign.contents and now is not None and not self._explained(memory, foreign):
                write = Written(foreign.before, foreign.site, foreign.how, 0, "foreign", foreign.start, foreign.end)
                self.ledger.add_silent(memory, write)
            foreign.contents, foreign.before = now, before

    def small(self) -> bool:
        """Little enough to be looked at several times in a step."""
        return sum(foreign.end - foreign.start for foreign in self.foreign.values()) <= SMALL_BYTES

    def _explained(self, memory: int, foreign: Foreign) -> bool:
        """Torch itself wrote this memory since: by an op, or by an optimizer."""
        if any(w.before >= foreign.before for w in self.ledger.writes_of(memory)):
            return True
        return any(s.before >= foreign.before and memory in s.memories for s in self.ledger.steps)


def _module_in_forward(frame: FrameType | None, parameter: Any) -> torch.nn.Module | None:
    """The module whose `forward` is running and that owns the parameter."""
    while frame is not None:
        if frame.f_code.co_name == "forward" and kind_of(frame.f_code) == USER:
            module = local_names(frame).get("self")
            if is_a(module, torch.nn.Module) and any(p is parameter for _, p, _ in tensors_of(module)):
                return module
        frame = frame.f_back
    return None
