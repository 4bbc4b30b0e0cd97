"""Watches sharded parameters: FSDP's gathered copies, parameters that it replaces, and local parts of DTensors."""

from __future__ import annotations

import ast
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from torchsan import compat
from torchsan.model import Place
from torchsan.model.events import Line, Memory
from torchsan.model.parallel_events import ShardTouched
from torchsan.model.source import shown_path
from torchsan.observe import expressions as syntax
from torchsan.observe.imports import when_imported
from torchsan.observe.inflight import InFlight
from torchsan.observe.ledger import Written
from torchsan.observe.names import modules
from torchsan.observe.numbers import number_made_at
from torchsan.observe.objects import attributes_of, is_tensor
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.refusals import whole_statement
from torchsan.observe.sensors.replicas import ReplicaSensor, row
from torchsan.observe.sites import TORCH, USER, Site, kind_of, site_of, user_frames
from torchsan.observe.steps import OptimizerStep
from torchsan.observe.tensors import byte_range, memory_of, sample_bytes

_getframe = sys._getframe
LOOKS = 3
FSDP = "torch.distributed.fsdp._fully_shard._fsdp_param"
DTENSOR = "torch.distributed.tensor._api"


class ShardSensor:
    def __init__(self, recorder: Recorder, replicas: ReplicaSensor, inflight: InFlight) -> None:
        self.recorder = recorder
        self.replicas = replicas
        self.inflight = inflight
        # Gathered copies by memory, with the writes that filled them.
        self._gathered: dict[int, list[Written]] = {}
        self._replaced: dict[int, tuple[weakref.ref[Any], Site]] = {}
        self._looks: dict[object, int] = {}

    def install(self) -> None:
        when_imported(FSDP, self._watch_fsdp)
        when_imported(DTENSOR, self._watch_dtensor)
        self.replicas.before_steps.append(self._before_step)
        self.inflight.on_local_write = self._local_written

    def close(self) -> None:
        self._gathered.clear()
        self._replaced.clear()

    @shield
    def _watch_fsdp(self) -> None:
        kind = getattr(sys.modules.get(FSDP), "FSDPParam", None)
        if kind is None or not self.recorder.active:
            return
        patches = self.recorder.patches
        patches.set(kind, "__init__", self._after(kind.__init__, self._sharded))
        patches.set(kind, "to_unsharded", self._after(kind.to_unsharded, self._unsharded))
        patches.set(kind, "to_sharded", self._first(kind.to_sharded, self._resharding))

    @shield
    def _watch_dtensor(self) -> None:
        kind = getattr(sys.modules.get(DTENSOR), "DTensor", None)
        if kind is None or not self.recorder.active:
            return
        patches = self.recorder.patches
        from_local = kind.from_local

        def made(local: Any, *args: Any, **kwargs: Any) -> Any:
            result = from_local(local, *args, **kwargs)
            self._from_local(local, result, _getframe(1))
            return result

        patches.set(kind, "from_local", staticmethod(made))
        patches.set(kind, "to_local", self._after(kind.to_local, self._to_local))
        # Whoever imports this may do so while torch compiles, and the patches are out.
        data: Any = patches.current(torch.Tensor, "data")

        def assign(tensor: Any, value: Any) -> None:
            if type(tensor) is kind and type(value) is not kind and is_tensor(value):
                self._plain_data(_getframe(1))
            data.__set__(tensor, value)
            if type(tensor) is kind and type(value) is kind:
                self._lost_data(tensor, value, _getframe(1))

        patches.set(torch.Tensor, "data", property(data.__get__, assign, data.__delete__))

    def _after(self, original: Callable[..., Any], then: Callable[..., None]) -> Callable[..., Any]:
        def method(this: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(this, *args, **kwargs)
            then(this, args, result, _getframe(1))
            return result

        method.__doc__, method.__wrapped__ = original.__doc__, original  # type: ignore[attr-defined]
        return method

    def _first(self, original: Callable[..., Any], before: Callable[..., None]) -> Callable[..., Any]:
        def method(this: Any, *args: Any, **kwargs: Any) -> Any:
            before(this, _getframe(1))
            return original(this, *args, **kwargs)

        method.__doc__, method.__wrapped__ = original.__doc__, original  # type: ignore[attr-defined]
        return method

    def _on(self) -> bool:
        return self.recorder.active and not self.recorder.paused

    # -- FSDP ---------------------------------------------------------------------------------------

    @shield
    def _sharded(self, parameter: Any, args: Any, result: Any, frame: FrameType) -> None:
        if self._on() and args and is_tensor(args[0]):
            self._replaced[id(args[0])] = (weakref.ref(args[0]), site_of(frame))

    @shield
    def _unsharded(self, parameter: Any, args: Any, result: Any, frame: FrameType) -> None:
        memory = memory_of(getattr(parameter, "_unsharded_param", None))
        if self._on() and memory is not None:
            self._gathered[memory] = list(self.recorder.ledger.writes.get(memory, []))

    @shield
    def _resharding(self, parameter: Any, frame: FrameType) -> None:
        """The gathered copy is about to be freed: what was written into it is lost, and what looks into it crashes."""
        memory = memory_of(getattr(parameter, "_unsharded_param", None))
        filled = self._gathered.pop(memory, None) if memory is not None else None
        if not self._on() or memory is None or filled is None:
            return
        info = getattr(parameter, "_module_info", None)
        name = getattr(info, "param_name", "")
        for write in self.recorder.ledger.writes.get(memory, []):
            # Torch's own distributed code fills the copy; that is its job.
            if write not in filled and write.kind == "op" and "distributed" not in _path(write.site):
                line = Line(whole_statement(write.site.place))
                self.recorder.emit(
                    ShardTouched("lost-write", Memory(name, "parameter"), line, Line(site_of(frame).place))
                )
                break
        looks = self._looks.get(id(parameter), 0)
        if looks < LOOKS:
            self._looks[id(parameter)] = looks + 1
            self._kept(memory, name, frame)

    def _kept(self, memory: int, name: str, frame: FrameType) -> None:
        for _, module in modules(user_frames(frame)):
            for inner in module.modules():
                for attribute, value in attributes_of(inner, 400).items():
                    if is_tensor(value) and memory_of(value) == memory:
                        self._tell_kept(inner, attribute, name, frame)
                        return

    def _tell_kept(self, module: Any, attribute: str, name: str, frame: FrameType) -> None:
        found = _assignment(type(module), attribute)
        if found is not None:
            freed = Line(site_of(frame).place)
            memory = Memory(f"self.{attribute}")
            self.recorder.emit(ShardTouched("kept", memory, Line(found), freed, name))

    def _before_step(self, step: OptimizerStep, made: Site | None) -> None:
        for parameter in step.parameters if self._replaced else ():
            known = self._replaced.get(id(parameter))
            if known is not None and known[0]() is parameter and getattr(parameter, "grad", None) is None:
                line = Line(made.place) if made is not None else Line(step.site.place)
                memory = Memory(type(step.optimizer).__name__)
                self.recorder.emit(ShardTouched("replaced", memory, line, Line(known[1].place)))
                self.replicas.explained(step.optimizer)
                return

    # -- DTensor ------------------------------------------------------------------------------------

    @shield
    def _from_local(self, local: Any, result: Any, frame: FrameType) -> None:
        journal = self.recorder.journal
        if not self._on() or journal is None or kind_of(frame.f_code) != USER or not is_tensor(local):
            return
        site = site_of(frame)
        looks = self._looks[site] = self._looks.get(site, 0) + 1
        if looks <= LOOKS and all(placement.is_replicate() for placement in result.placements):
            start, end = byte_range(local)
            contents = sample_bytes(torch._C.TensorBase.untyped_storage(local), start, end)
            journal.write("replicate", line=row(site.place), visit=looks, digest=str(contents))

    @shield
    def _to_local(self, tensor: Any, args: Any, result: Any, frame: FrameType) -> None:
        if not self._on() or kind_of(frame.f_code) != USER:
            return
        if any(p.is_shard() for p in tensor.placements):
            self.inflight.watch_local(result)
        elif all(p.is_replicate() for p in tensor.placements):
            self._copy_read(result, frame)

    def _copy_read(self, local: Any, frame: FrameType) -> None:
        """This rank's copy of a replicated tensor, if the program writes it: is it that of the others?"""
        memory, journal = memory_of(local), self.recorder.journal
        writes = [w for w in self.recorder.ledger.writes.get(memory or 0, []) if w.kind == "op"]
        if memory is None or journal is None:
            return
        site = site_of(frame)
        looks = self._looks[site, memory] = self._looks.get((site, memory), 0) + 1
        if looks <= 2 * LOOKS:
            start, end = byte_range(local)
            contents = sample_bytes(torch._C.TensorBase.untyped_storage(local), start, end)
            written = row(whole_statement(writes[-1].site.place)) if writes else None
            journal.write("copy", line=row(site.place), visit=looks, digest=str(contents), written=written)

    @shield
    def _local_written(self, name: str, args: Any, frame: FrameType) -> None:
        """A write to this rank's part by numbers: they must be the same on all ranks."""
        journal = self.recorder.journal
        values = [v for v in (_number(a) for a in args[1:]) if v is not None]
        if journal is None or not values:
            return
        site = site_of(frame)
        looks = self._looks[site] = self._looks.get(site, 0) + 1
        if looks <= LOOKS:
            place = whole_statement(site.place)
            made = number_made_at(user_frames(frame)[0]) if site.library is None else None
            journal.write(
                "part",
                line=row(place),
                visit=looks,
                op=name,
                values=[f"{v:.6g}" for v in values],
                made=row(made) if made is not None else None,
            )

    @shield
    def _lost_data(self, tensor: Any, value: Any, frame: FrameType) -> None:
        """Did the assignment of one DTensor to another's `.data` do anything?"""
        if not self._on() or kind_of(frame.f_code) == TORCH:
            return
        mine, given = getattr(tensor, "_local_tensor", None), getattr(value, "_local_tensor", None)
        if mine is None or given is None or memory_of(mine) == memory_of(given) or mine.shape != given.shape:
            return
        with compat.unseen():
            equal = bool(torch.equal(mine.detach(), given.detach()))
        if not equal:
            line = Line(whole_statement(site_of(frame).place))
            self.recorder.emit(ShardTouched("lost-data", Memory(""), line))

    @shield
    def _plain_data(self, frame: FrameType) -> None:
        if self._on() and kind_of(frame.f_code) != TORCH:
            line = Line(whole_statement(site_of(frame).place))
            self.recorder.emit(ShardTouched("plain-data", Memory(""), line))


def _number(value: Any) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if is_tensor(value) and value.numel() == 1 and value.device.type == "cpu":
        return float(value.detach().item())
    return None


def _path(site: Site) -> str:
    return site.library[0].co_filename if site.library is not None else ""


def _assignment(kind: type, attribute: str) -> Place | None:
    """Where a class assigns `self.attribute`, if another function reads it."""
    codes = (getattr(vars(cls).get("forward"), "__code__", None) for cls in kind.__mro__)
    path = next((shown_path(code.co_filename) for code in codes if code is not None and kind_of(code) == USER), None)
    file = syntax.file_of(path) if path else None
    if file is None or path is None:
        return None
    stores: list[ast.Attribute] = []
    loads: list[ast.Attribute] = []
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Attribute) and node.attr == attribute:
            (stores if isinstance(node.ctx, ast.Store) else loads).append(node)
    if not stores or all(file.function(load) is file.function(stores[0]) for load in loads):
        return None
    statement = file.statement(stores[0])
    return file.place(statement, Place(path, stores[0].lineno)) if statement is not None else None
