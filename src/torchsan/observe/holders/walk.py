"""The walk itself: through containers, attributes, closures, defaults, classes, cached results and generators."""

from __future__ import annotations

import functools
import gc
import weakref
from collections import deque
from collections.abc import Iterator
from types import FunctionType, GeneratorType, MemberDescriptorType, MethodType
from typing import Any

import torch

from torchsan import compat
from torchsan.observe.holders.classes import (
    CLASS,
    DICT,
    MEMORY,
    MODULE,
    PASSED,
    PLAIN_IDS,
    RUN,
    SEQUENCE,
    SET,
    Cached,
    allows_references,
    bases_of,
    defaults_of,
    is_barren,
    kept_by_torch,
    note_if_barren,
    of_the_user,
    way_of,
)
from torchsan.observe.holders.extents import Extent, extent_of, lies_in
from torchsan.observe.holders.slots import Census, Holding, Kind, Step, joined
from torchsan.observe.names import local_names
from torchsan.observe.objects import (
    MODULE_PARTS,
    attributes_of,
    class_attribute,
    entries_of,
    is_a,
    is_exact_tensor,
    is_exactly,
    is_tensor,
    items_of,
    members_of,
)
from torchsan.observe.sites import USER, kind_of

MAX_OBJECTS = 20_000
MAX_DEPTH = 9
MAX_OTHER_WAYS, MAX_TURNS = 256, 3
# Of longer containers the first and the last entries are looked at.
FIRST, LAST = 16, 48
_CONTAINERS = (list, tuple, dict)
_traceback_of = BaseException.__dict__["__traceback__"].__get__


class Walk:
    def __init__(self, around: list[tuple[int, int]] | None = None) -> None:
        self.census = Census()
        self._around = around
        self._queue: deque[tuple[Any, int, Step]] = deque()
        self._met: set[int] = set()
        # A second way to what was met before, as an entry of a container: `tracks[2]` for the `self` that is running.
        self._other_ways: dict[int, tuple[Any, Step]] = {}

    def add(self, value: Any, step: Step) -> None:
        way = way_of(type(value))
        if way == PASSED:
            return
        if way == MEMORY:
            self._hold(value, step)
            # A gradient is held by its tensor, which adds to it at every backward.
            if is_exact_tensor(value) and value.requires_grad and compat.is_leaf(value) and value.grad is not None:
                self._hold(value.grad, Step(step, ".grad", "grad", id(value), "grad", step.depth + 1))
        elif id(value) in self._met:
            lasting = step.kind == "global" and way in (SEQUENCE, DICT)
            if (step.kind == "item" or lasting) and len(self._other_ways) < MAX_OTHER_WAYS:
                self._other_ways.setdefault(id(value), (value, step))
        elif step.depth < MAX_DEPTH and not (way == RUN and is_barren(value)):
            self._met.add(id(value))
            self._queue.append((value, way, step))

    def _hold(self, value: Any, step: Step) -> None:
        if self._around is not None and not lies_in(value, self._around):
            return
        extent = extent_of(value)
        if extent is not None:
            self.census.holdings.append(Holding(step, value, extent))

    def add_other_ways(self) -> None:
        """The same slots again, by the ways that lead through containers, or to a container from the module."""
        ways: dict[int, Step] = {}
        for value, step in self._other_ways.values():
            ways[id(value)] = step
            if is_a(value, torch.nn.Module):
                ways.update((id(part), step) for part in attributes_of(value).values() if is_a(part, dict))
        for holding in list(self.census.holdings) if ways else ():
            at = holding.step
            for _ in range(MAX_TURNS):  # one way may lead to the next
                other = _on_another_way(at, ways)
                if other is None:
                    break
                self.census.holdings.append(Holding(other, holding.value, holding.extent))
                at = other

    def run(self) -> None:
        count = 0
        while self._queue:
            value, way, step = self._queue.popleft()
            count += 1
            if count > MAX_OBJECTS:
                self.census.complete = False
                self._queue.clear()
                return
            try:
                self._open(value, way, step)
            except Exception:
                continue  # changed by another thread while we looked

    def _open(self, value: Any, way: int, step: Step) -> None:
        if way == SEQUENCE:
            names = class_attribute(type(value), "_fields")
            for index, item in _ends(value):
                part = f".{names[index]}" if type(names) is tuple and index < len(names) else f"[{index}]"
                self._below(item, step, part, "item", value, index)
        elif way == DICT:
            for key, item in _ends_of_dict(value):
                self._below(item, step, f"[{_shown(key)}]", "item", value, _hashable(key))
        elif way == SET:
            for item in list(set.__iter__(value) if is_a(value, set) else frozenset.__iter__(value))[: FIRST + LAST]:
                self._below(item, step, "{…}", "item", value, id(item))
        elif way == RUN:
            self._open_code(value, step)
        elif way == MODULE:
            self._open_module(value, step)
        elif way == CLASS:
            self._open_class(value, step)
        else:
            self._open_object(value, step)

    def _below(self, value: Any, step: Step, part: str, kind: Kind, owner: Any, key: object) -> None:
        if id(type(value)) not in PLAIN_IDS:
            way = Step(step, part, kind, id(owner), key, step.depth + 1)
            way.of = type(owner)
            if allows_references(type(owner)):
                way.witness = weakref.ref(owner)
            self.add(value, way)

    def _count(self, kind: type) -> None:
        self.census.instances[id(kind)] = (kind, self.census.instances.get(id(kind), (kind, 0))[1] + 1)

    def _open_object(self, value: Any, step: Step) -> None:
        self._count(type(value))
        if is_a(value, torch.optim.Optimizer) and not of_the_user(type(value)):
            self._open_optimizer(value, step)
            return
        for name, item in attributes_of(value).items():
            self._below(item, step, f".{name}", "attribute", value, name)
        for cls in bases_of(type(value)):
            for name, slot in members_of(cls):
                if type(slot) is MemberDescriptorType and not name.startswith("__"):
                    try:
                        item = slot.__get__(value)
                    except AttributeError:
                        continue  # not bound yet
                    self._below(item, step, f".{name}", "attribute", value, name)

    def _open_optimizer(self, optimizer: torch.optim.Optimizer, step: Step) -> None:
        """Its options, which may be tensors. The parameters are the model's, and the state is its own affair."""
        groups = attributes_of(optimizer).get("param_groups")
        for index, (_, group) in enumerate(items_of(groups)):
            way = Step(step, f".param_groups[{index}]", "item", id(groups), index, step.depth + 1)
            if id(group) in self._met:
                self.add(group, way)
            for key, item in entries_of(group):
                if key != "params":
                    self._below(item, way, f"['{key}']", "item", group, key)

    def _open_module(self, module: torch.nn.Module, step: Step) -> None:
        self.census.modules.append((step, module))
        self._count(type(module))
        for name, item in attributes_of(module).items():
            if name in MODULE_PARTS:
                for key, inner in entries_of(item):
                    self._below(inner, step, f".{key}", "attribute", item, key)
            elif issubclass(type(item), _CONTAINERS) and name in kept_by_torch(type(module)):
                continue  # DDP has lists of all buffers
            elif not (name.startswith("_") and "hooks" in name):
                self._below(item, step, f".{name}", "attribute", module, name)
            elif is_a(item, dict) and item:
                for hook in list(dict.values(item)):  # what hooks have captured
                    self._below(hook, step, "", "attribute", item, id(hook))

    def _open_class(self, cls: type, step: Step) -> None:
        # What torch keeps on its own classes is its own affair: DDP remembers there which module is running.
        if not of_the_user(cls):
            return
        for name, item in members_of(cls):
            # Of what Python calls by itself, `__init__` and its kin, the defaults count as those of others do.
            if not name.startswith("__") or type(item) is FunctionType:
                item = item.__func__ if is_exactly(item, (staticmethod, classmethod)) else item
                self._below(item, step, f".{name}", "class", cls, name)

    def _open_code(self, value: Any, step: Step) -> None:
        if is_a(value, MethodType):
            self._below(value.__self__, step, "", "attribute", value, "__self__")
            value = value.__func__
        if type(value) is FunctionType:
            note_if_barren(value)
            if kind_of(value.__code__) == USER:
                self._open_function(value, step)
            else:  # what a decorator of a library has wrapped
                self._below(attributes_of(value).get("__wrapped__"), step, "", "cell", value, "__wrapped__")
        elif is_a(value, functools.partial):
            for index, item in enumerate((*value.args, *value.keywords.values())):
                self._below(item, step, f"({index})", "cell", value, index)
        elif type(value) is Cached:
            wrapped = value.__wrapped__
            function = wrapped.__func__ if type(wrapped) is MethodType else wrapped
            if type(function) is FunctionType and kind_of(function.__code__) == USER:
                for item in gc.get_referents(value):
                    if item is not wrapped:
                        self._below(item, step, "(…)", "cache", value, id(item))
        elif is_a(value, BaseException):
            self._open_exception(value, step)
        elif type(value) is GeneratorType and value.gi_frame is not None and kind_of(value.gi_code) == USER:
            for name, item in local_names(value.gi_frame).items():
                self._below(item, step, f".{name}", "cell", value, name)

    def _open_exception(self, error: BaseException, step: Step) -> None:
        """An exception keeps the frames that it went through, and they their variables."""
        trace = _traceback_of(error)
        while trace is not None:
            if kind_of(trace.tb_frame.f_code) == USER:
                for name, item in local_names(trace.tb_frame).items():
                    self._below(item, step, f".{name}", "cell", trace.tb_frame, name)
            trace = trace.tb_next

    def _open_function(self, function: FunctionType, step: Step) -> None:
        for name, item in defaults_of(function):
            if id(type(item)) not in PLAIN_IDS:
                way = Step(step, f"({name})", "default", id(function), name, step.depth + 1, None, function)
                self.add(item, way)
        cells = function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
            try:
                self._below(cell.cell_contents, step, f".{name}", "cell", cell, name)
            except ValueError:
                continue  # not bound yet
        wrapped = attributes_of(function).get("__wrapped__")
        if wrapped is not None:
            self._below(wrapped, step, "", step.kind, function, "__wrapped__")

    def add_young(self, tensor: Any, *, grown: bool = False) -> None:
        """Containers made of late that no name leads to: the list under `list(generator)` or a comprehension.

        `grown`: look among older objects as well, which takes longer. To look ages what is young, too.
        """
        wanted = extent_of(tensor)
        if wanted is None:
            return
        before = len(self.census.holdings)
        self._young_among(gc.get_objects(0) + gc.get_objects(1), wanted)
        if grown and len(self.census.holdings) == before:
            self._young_among(gc.get_objects(2), wanted)

    def _young_among(self, objects: list[Any], wanted: Extent) -> None:
        for value in objects:
            if (type(value) is list or type(value) is dict) and value and id(value) not in self._met:
                last = value[-1] if type(value) is list else next(reversed(dict.values(value)))  # type: ignore[arg-type]
                last = last[0] if type(last) is tuple and last else last
                if type(last) is torch.Tensor and extent_of(last) == wanted:
                    self._young(value, wanted)

    def _young(self, value: list[Any] | dict[Any, Any], wanted: Extent) -> None:
        held = value if type(value) is list else [item for _, item in _ends_of_dict(value)]  # type: ignore[arg-type]
        for index, item in _ends(held):
            inner = item[0] if type(item) is tuple and item else item
            if is_tensor(inner) and extent_of(inner) == wanted:
                step = Step(None, f"[{index}]", "young", id(value), index)
                self.census.holdings.append(Holding(step, inner, wanted))


def _on_another_way(at: Step, ways: dict[int, Step]) -> Step | None:
    below: list[Step] = []
    for step in at.up():
        below.append(step)
        way = ways.get(step.owner)
        if way is not None and way is not step.above and way.depth + len(below) < MAX_DEPTH:
            return joined(way, below)
    return None


def _ends(values: Any) -> Iterator[tuple[int, Any]]:
    kind = list if is_a(values, list) else tuple if is_a(values, tuple) else deque
    count = kind.__len__(values)
    if count <= FIRST + LAST:
        yield from enumerate(list(kind.__iter__(values)))
        return
    for index in (*range(FIRST), *range(count - LAST, count)):
        yield index, kind.__getitem__(values, index)


def _ends_of_dict(values: dict[Any, Any]) -> list[tuple[Any, Any]]:
    items = list(dict.items(values))
    return items if len(items) <= FIRST + LAST else [*items[:FIRST], *items[-LAST:]]


def _shown(key: Any) -> str:
    text = repr(key) if is_exactly(key, (str, int, float, bool)) else "…"
    return text if len(text) <= 40 else "…"


def _hashable(key: Any) -> object:
    return key if is_exactly(key, (str, int, float, bool)) else id(key)
