"""Modules that DDP has wrapped: which parameters it knows, and what was changed after it had taken them."""

from __future__ import annotations

import ast
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from torchsan.model.events import Line, Memory
from torchsan.model.parallel_events import BufferUpdateLost, KeptGradient, ParameterUnknown
from torchsan.observe import expressions as syntax
from torchsan.observe.clock import clock
from torchsan.observe.flights import Flight
from torchsan.observe.names import local_names
from torchsan.observe.objects import is_tensor, items_of
from torchsan.observe.recorder import Recorder
from torchsan.observe.refusals import whole_statement
from torchsan.observe.sites import Site, frame_place, site_of, user_frames
from torchsan.observe.tensors import memory_of

# Writes that add to what is there: lost, a part of the count is lost. An average that forgets is DDP's to choose.
ADDING = {"add_", "__iadd__", "index_add_", "scatter_add_", "__setitem__", "sub_", "__isub__"}
LOOKS = 4


@dataclass(slots=True)
class Wrapped:
    """One DDP module as it was built."""

    site: Site
    # Parameters that it averages: name and type of each, by identity.
    managed: dict[int, tuple[str, torch.dtype]]
    names: dict[str, int]
    ignored: set[str]
    synced: bool = False
    last_sync: int = 0
    # Writes to its parameters from before: DDP has made them equal since.
    earlier: frozenset[Any] = frozenset()
    forwards: int = 0
    told: set[str] = field(default_factory=set)


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
        self.all[ddp] = Wrapped(site_of(frame), managed, names, ignored, last_sync=clock.now())
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
            if memory is None or memory not in changed:
                continue
            writes = [w for w in self.recorder.ledger.writes.get(memory, []) if w.before >= since and w.kind == "op"]
            if writes and all(w.op in ADDING and w.site.library is None for w in writes):
                line = Line(whole_statement(writes[-1].site.place))
                self.recorder.emit(BufferUpdateLost(Memory(name, "buffer"), line, Line(flight.site.place)))

    # -- gradients that are kept --------------------------------------------------------------------

    def forward(self, ddp: Any, frame: FrameType) -> None:
        wrapped = self.all.get(ddp)
        if wrapped is None:
            return
        wrapped.forwards += 1
        if torch.is_grad_enabled() and ddp.require_backward_grad_sync:
            wrapped.synced = True
        if ddp.gradient_as_bucket_view and wrapped.forwards <= LOOKS:
            gradients = {memory_of(p.grad): n for n, p in ddp.module.named_parameters() if p.grad is not None}
            if gradients:
                self._kept_gradients(gradients, frame)

    def _kept_gradients(self, gradients: dict[int | None, str], frame: FrameType) -> None:
        for user in user_frames(frame)[:2]:
            place = frame_place(user)
            file = syntax.file_of(place.path)
            call = file.at(place) if file else None
            if file is None or not isinstance(call, ast.expr):
                continue
            for name, value in local_names(user).items():
                held = [value] if is_tensor(value) else [item for _, item in items_of(value, 256)]
                kept = next((t for t in held if is_tensor(t) and memory_of(t) in gradients), None)
                if kept is None or isinstance(kept, torch.nn.Parameter) or not _read_later(file, call, name):
                    continue
                statement = _keeping(file, file.function(call), name)
                line = Line(file.place(statement, place)) if statement is not None else None
                gradient = gradients[memory_of(kept)]
                self.recorder.emit(KeptGradient(Memory(gradient), name, line, Line(place)))
                return


def _keeping(file: syntax.File, function: ast.AST, name: str) -> ast.stmt | None:
    """The statement that puts a gradient into a name, or into the list or dictionary of that name."""
    for node in ast.walk(function):
        if isinstance(node, (ast.Assign, ast.Expr)) and "grad" in ast.unparse(node):
            written = node.targets[0] if isinstance(node, ast.Assign) else node.value
            root = next((n for n in ast.walk(written) if isinstance(n, ast.Name)), None)
            if root is not None and root.id == name:
                return node
    return None


def _read_later(file: syntax.File, call: ast.expr, name: str) -> bool:
    if syntax.read_again(file, call, name) is not None:
        return True
    # Read after the loop that the call stands in, and bound before it.
    loop: ast.AST = call
    for around in file.up(call):
        if isinstance(around, (ast.For, ast.While)):
            loop = around
    if loop is call:
        return False
    bound_inside = any(
        isinstance(n, ast.Name)
        and n.id == name
        and isinstance(n.ctx, ast.Store)
        and not _under_condition(file, n, loop)
        for n in ast.walk(loop)
    )
    end = getattr(loop, "end_lineno", 0)
    function = file.function(call)
    read = any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) and n.lineno > end
        for n in ast.walk(function)
    )
    return read and not bound_inside


def _under_condition(file: syntax.File, node: ast.AST, loop: ast.AST) -> bool:
    for around in file.up(node):
        if around is loop:
            return False
        if isinstance(around, ast.If):
            return True
    return False


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
