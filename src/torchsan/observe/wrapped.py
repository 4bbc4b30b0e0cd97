"""Modules that DDP has wrapped: which parameters it knows, and what was changed after it had taken them."""

from __future__ import annotations

import ast
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType, FunctionType
from typing import Any

import torch

from torchsan import compat_distributed as distributed
from torchsan.model import Place
from torchsan.model.events import Line, Memory
from torchsan.model.parallel_events import BufferUpdateLost, ParameterUnknown
from torchsan.model.source import shown_path
from torchsan.observe import expressions as syntax
from torchsan.observe.bucket_gradients import BucketGradients
from torchsan.observe.clock import clock
from torchsan.observe.flights import Flight
from torchsan.observe.recorder import Recorder
from torchsan.observe.refusals import whole_statement
from torchsan.observe.sites import USER, Site, kind_of, site_of
from torchsan.observe.tensors import memory_of

# Writes that add to what is there: lost, a part of the count is lost. An average that forgets is DDP's to choose.
ADDING = {"add_", "__iadd__", "index_add_", "scatter_add_", "__setitem__", "sub_", "__isub__"}
DDP_FILES = distributed.ddp_files()


@dataclass(slots=True)
class Wrapped:
    """One DDP module as it was built."""

    site: Site
    # Parameters that it averages: name and type of each, by identity.
    managed: dict[int, tuple[str, torch.dtype]]
    names: dict[str, int]
    ignored: set[str]
    left_alone: frozenset[int]  # the parameters of these names, by identity
    synced: bool = False
    alone: bool = False  # the last forward was one whose gradients stay on this rank
    sums: int = 0  # forwards whose gradients are averaged
    last_sync: int = 0
    # Writes to its parameters from before: DDP has made them equal since.
    earlier: frozenset[Any] = frozenset()
    forwards: int = 0
    told: set[str] = field(default_factory=set)
    buffers: dict[str, int | None] = field(default_factory=dict)  # where each buffer lay at the last broadcast
    gradients: BucketGradients | None = None  # where gradients are views of buckets


class WrappedModules:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.all: weakref.WeakKeyDictionary[Any, Wrapped] = weakref.WeakKeyDictionary()
        # Where parameters were set free, replaced or converted, by identity or by name.
        self._changes: dict[object, Site] = {}

    def wrapped(self, ddp: Any, frame: FrameType) -> None:
        ignored = set(getattr(ddp, "parameters_to_ignore", ()))
        named = [(n, p) for n, p in ddp.module.named_parameters() if n not in ignored]
        managed = {id(p): (n, p.dtype) for n, p in named if p.requires_grad}
        names = {n: id(p) for n, p in named if p.requires_grad}
        left_alone = frozenset(id(p) for n, p in ddp.module.named_parameters() if n in ignored)
        self.all[ddp] = Wrapped(site_of(frame), managed, names, ignored, left_alone, last_sync=clock.now())
        if ddp.gradient_as_bucket_view:
            self.all[ddp].gradients = BucketGradients()
        logged = self.recorder.ledger.writes
        memories = [memory_of(p) for _, p in named]
        self.all[ddp].earlier = frozenset((m, w) for m in memories if m is not None for w in logged.get(m, []))

    def changed(self, keys: list[object], frame: FrameType) -> None:
        if self.all:
            site = site_of(frame)
            for key in keys:
                self._changes[key] = site

    def managed(self, parameter: Any) -> Wrapped | None:
        return next((w for w in self.all.values() if id(parameter) in w.managed), None)

    def ignores(self, parameter: Any) -> bool:
        """Was a DDP module told to leave it alone? Then every rank has its own: an expert, a part of a model."""
        return any(id(parameter) in wrapped.left_alone for wrapped in self.all.values())

    def joined(self) -> bool:
        """Are ranks allowed to make different numbers of steps, the others shadowing what is missing?"""
        return any(distributed.is_joining(ddp) for ddp in self.all)

    # -- parameters that DDP does not know ----------------------------------------------------------

    def unknown_parameters(self, ddp: Any) -> Iterator[tuple[str, Any, str]]:
        """Parameters of the module that get gradients which DDP does not average: name, tensor, why."""
        wrapped = self.all[ddp]
        for name, parameter in ddp.module.named_parameters():
            if name in wrapped.ignored or not parameter.requires_grad:
                continue
            known = wrapped.managed.get(id(parameter))
            if known is None:
                yield name, parameter, "replaced" if name in wrapped.names else "unfrozen"
            elif known[1] != parameter.dtype:
                yield name, parameter, "converted"

    def look_at_gradients(self, parameters: list[Any], reduced: set[int], frame: FrameType) -> None:
        """Before a step: gradients of this rank alone, on a parameter of a wrapped module."""
        stepping = {id(p) for p in parameters if p.grad is not None}
        for ddp, wrapped in list(self.all.items()):
            for name, parameter, why in self.unknown_parameters(ddp):
                if id(parameter) not in stepping or memory_of(parameter.grad) in reduced or why in wrapped.told:
                    continue
                wrapped.told.add(why)
                self._tell_unknown(wrapped, name, parameter, why, site_of(frame))

    def _tell_unknown(self, wrapped: Wrapped, name: str, parameter: Any, why: str, used: Site) -> None:
        site = self._changes.get(id(parameter)) or self._changes.get(name.rpartition(".")[2])
        place = site.place if site is not None else _set_free(used) if why == "unfrozen" else None
        line = Line(whole_statement(place)) if place is not None else None
        self.recorder.emit(
            ParameterUnknown(Memory(name, "parameter"), why, line, Line(wrapped.site.place), Line(used.place))  # type: ignore[arg-type]
        )

    def explain_reduction(self, ddp: Any, frame: FrameType) -> list[Any]:
        """DDP waits for a gradient that cannot come: of a parameter that is no longer in the module."""
        wrapped = self.all.get(ddp)
        if wrapped is None:
            return []
        now = {id(p) for p in ddp.module.parameters()}
        lost = [name for name, key in wrapped.names.items() if key not in now]
        if not lost:
            return []
        before = len(self.recorder.report.findings)
        for name in lost[:1]:
            self._tell_unknown(wrapped, name, None, "removed", site_of(frame))
        return self.recorder.report.findings[before:]

    # -- buffers that rank 0 overwrites -------------------------------------------------------------

    def buffers_synced(self, ddp: Any, flight: Flight, changed: set[int]) -> None:
        wrapped = self.all.get(ddp)
        if wrapped is None:
            return
        since, wrapped.last_sync = wrapped.last_sync, clock.now()
        for name, buffer in ddp.module.named_buffers():
            memory = memory_of(buffer)
            known, wrapped.buffers[name] = wrapped.buffers.get(name, memory), memory
            if memory is None or memory not in changed:
                continue
            if memory != known:
                self._rebound(ddp, name, flight)
                continue
            logged = self.recorder.ledger.writes.get(memory, [])
            writes = [w for w in logged if w.before >= since and w.kind == "op" and not _by_ddp(w.site)]
            if writes and all(w.op in ADDING and w.site.library is None for w in writes):
                line = Line(whole_statement(writes[-1].site.place))
                self.recorder.emit(BufferUpdateLost(Memory(name, "buffer"), line, Line(flight.site.place)))

    def _rebound(self, ddp: Any, name: str, flight: Flight) -> None:
        """A buffer that was replaced since the last broadcast: does the module add to it, `self.n = self.n + m`?"""
        path, _, attribute = name.rpartition(".")
        place = _adding(type(ddp.module.get_submodule(path)), attribute)
        if place is not None:
            self.recorder.emit(BufferUpdateLost(Memory(name, "buffer"), Line(place), Line(flight.site.place)))

    # -- gradients that are kept --------------------------------------------------------------------

    def forward(self, ddp: Any, frame: FrameType) -> None:
        wrapped = self.all.get(ddp)
        if wrapped is None:
            return
        wrapped.forwards += 1
        if torch.is_grad_enabled():
            wrapped.alone = not ddp.require_backward_grad_sync
        if torch.is_grad_enabled() and ddp.require_backward_grad_sync:
            wrapped.synced = True
            wrapped.sums += 1
            if wrapped.gradients is not None:
                wrapped.gradients.forward(self.recorder, frame)

    def after_backward(self, backwards: int) -> None:
        for ddp, wrapped in list(self.all.items()):
            # What this rank adds after the sum is its own, though a sum was made before.
            wrapped.synced = wrapped.synced and not wrapped.alone
            if wrapped.gradients is not None:
                wrapped.gradients.passed(ddp)


def _by_ddp(site: Site) -> bool:
    """The broadcast itself, which comes into sight as a copy where DDP puts what it got back into the buffers."""
    return site.library is not None and site.library[0].co_filename in DDP_FILES


def _adding(kind: type, attribute: str) -> Place | None:
    """The one statement of a class of the user's that adds to an attribute of its own and binds the sum."""
    codes = [f.__code__ for f in vars(kind).values() if isinstance(f, FunctionType) and kind_of(f.__code__) == USER]
    for path in dict.fromkeys(shown_path(code.co_filename) for code in codes):
        file = syntax.file_of(path)
        if file is None:
            continue
        classes = [n for n in ast.walk(file.tree) if isinstance(n, ast.ClassDef) and n.name == kind.__name__]
        binding = [n for one in classes for n in ast.walk(one) if isinstance(n, ast.Assign) and _binds(n, attribute)]
        if len(binding) == 1 and _adds(binding[0], attribute):
            return file.place(binding[0], Place(path, binding[0].lineno))
    return None


def _binds(statement: ast.Assign, attribute: str) -> bool:
    return any(isinstance(target, ast.Attribute) and target.attr == attribute for target in statement.targets)


def _adds(statement: ast.Assign, attribute: str) -> bool:
    value = statement.value
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, (ast.Add, ast.Sub)):
        return False
    sides = (value.left, value.right) if isinstance(value.op, ast.Add) else (value.left,)
    return any(isinstance(side, ast.Attribute) and side.attr == attribute for side in sides)


def _set_free(used: Site) -> Any:
    """The one statement of the file that sets `requires_grad = True`: an attribute tells nobody that it is set."""
    file = syntax.file_of(used.place.path)
    if file is None:
        return None
    found = [
        node
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Attribute) and target.attr == "requires_grad" for target in node.targets)
        and isinstance(node.value, ast.Constant)
        and node.value.value is True
    ]
    return file.place(found[0], used.place) if len(found) == 1 else None
