"""Every slot from which the program can reach a tensor or an array, with the path that leads to it.

Walks down from the frames that run and from the globals of the user's modules, through containers, attributes,
closures, defaults, classes, cached results and generators. Objects of libraries are not opened, except modules and
data sets of torch. Nothing that is found outlives the census: slots are known by their owner's identity and their key.
"""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType, GeneratorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Literal

import torch

from torchsan import compat
from torchsan.observe.holders.extents import Extent, extent_of, holds_arrays, lies_in, stretches_of
from torchsan.observe.names import local_names
from torchsan.observe.objects import (
    attribute_of,
    attributes_of,
    class_attribute,
    class_members,
    entries_of,
    is_a,
    is_exact_tensor,
    is_exactly,
    is_tensor,
    items_of,
)
from torchsan.observe.sites import USER, kind_of, kind_of_path, user_frames

Kind = Literal["local", "global", "attribute", "item", "default", "cell", "class", "cache", "young", "grad"]
MAX_OBJECTS = 20_000
MAX_DEPTH = 9
MAX_KINDS = 10_000
MAX_OTHER_WAYS = 64
# Of longer containers the first and the last entries are looked at.
FIRST, LAST = 16, 48
_OPENED = ("torch.nn", "torch.optim", "torch.utils.data", "torchvision.transforms", "queue")
_traceback_of = BaseException.__dict__["__traceback__"].__get__
_Cached = type(functools.lru_cache(maxsize=1)(lambda: None))
bases_of = type.__dict__["__mro__"].__get__
_CODE = (FunctionType, MethodType, functools.partial, _Cached, GeneratorType, BaseException)


# What a class is to the walk: nothing of interest, memory, or something to open in one way or another.
_PASSED, _MEMORY, _SEQUENCE, _DICT, _SET, _RUN, _MODULE, _OBJECT, _CLASS = range(9)
_PLAIN = {
    int,
    float,
    complex,
    str,
    bytes,
    bool,
    type(None),
    torch.dtype,
    torch.device,
    torch.Size,
    CodeType,
    ModuleType,
}
# By the address of the class, which may refuse to be hashed; the class is kept, so that its address stays its own.
_ways: dict[int, tuple[type, int]] = {id(kind): (kind, _PASSED) for kind in _PLAIN}
_PLAIN_IDS = frozenset(map(id, _PLAIN))


@dataclass(slots=True)
class Step:
    """One step on the way from a root to a value."""

    above: Step | None
    part: str
    kind: Kind
    owner: int
    key: object
    depth: int = 0
    frame: FrameType | None = None
    # For defaults, the function that has them.
    function: FunctionType | None = None
    # Where the owner allows it, a reference that ends with it: its address may be another's afterwards.
    witness: weakref.ref[Any] | None = None

    @property
    def path(self) -> str:
        """The way as the user would write it: `self.rounds[2][0]`."""
        parts, at = [], self
        while at.above is not None:
            parts.append(at.part)
            at = at.above
        return at.part + "".join(reversed(parts))

    def up(self) -> Iterator[Step]:
        at: Step | None = self
        while at is not None:
            yield at
            at = at.above

    def without_frames(self) -> Step:
        """The way alone, which keeps nothing of the program's alive."""
        above = self.above.without_frames() if self.above is not None else None
        return Step(above, self.part, self.kind, self.owner, self.key, self.depth)

    @property
    def root(self) -> Step:
        return list(self.up())[-1]

    @property
    def outlives(self) -> bool:
        """Reached from something that stays when the functions that run have returned."""
        return any(step.kind in ("global", "attribute", "class", "cache", "default", "cell") for step in self.up())


@dataclass(slots=True)
class Holding:
    """A slot and what it holds now."""

    step: Step
    value: Any
    extent: Extent

    @property
    def slot(self) -> tuple[int, object]:
        return self.step.owner, self.step.key


@dataclass(slots=True)
class Census:
    holdings: list[Holding] = field(default_factory=list)
    # The classes of the instances that were met, by address, and how many; and the modules with the way to them.
    instances: dict[int, tuple[type, int]] = field(default_factory=dict)
    modules: list[tuple[Step, torch.nn.Module]] = field(default_factory=list)
    complete: bool = True

    def of(self, extent: Extent) -> list[Holding]:
        return [h for h in self.holdings if h.extent.meets(extent)]


def take_census(frame: FrameType | None, *, young: Any = None, around: Iterable[Any] | None = None) -> Census:
    """All holders that the user's frames at and above this one, and the user's modules, can reach.

    `young`: a tensor to look for in containers that no name holds yet, as the list that `list(generator)` is making.
    `around`: only holders of the memory of these are wanted.
    """
    walk = _Walk(None if around is None else stretches_of(around))
    frames = user_frames(frame, 24)
    shown = {id(one.f_globals) for one in frames if one.f_code.co_name == "<module>"}
    later: list[tuple[Any, Step]] = []
    # Functions and classes first, so that what they keep is known as theirs and not by the name of who uses it.
    for namespace in _namespaces(frames):
        for name, value in list(namespace.items()):
            way = _way_of(type(value))
            if way == _CLASS or (way == _RUN and not _is_barren(value)):
                walk.add(value, Step(None, name, "global", id(namespace), name))
            elif way not in (_PASSED, _RUN) and id(namespace) not in shown and not name.startswith("__"):
                later.append((value, Step(None, name, "global", id(namespace), name)))
    walk.run()
    for one in frames:
        kind: Kind = "global" if one.f_code.co_name == "<module>" else "local"
        for name, value in local_names(one).items():
            if not name.startswith("__"):
                walk.add(
                    value, Step(None, name, kind, id(one.f_globals) if kind == "global" else id(one), name, 0, one)
                )
    for value, step in later:
        walk.add(value, step)
    walk.run()
    walk.add_other_ways()
    if young is not None:
        walk.add_young(young)
    return walk.census


_modules_known: tuple[int, list[dict[str, Any]]] = (0, [])
_users: dict[int, tuple[object, bool]] = {}


def _namespaces(frames: Iterable[FrameType]) -> Iterator[dict[str, Any]]:
    """Globals of the frames, then of every module of the user's."""
    global _modules_known
    met: set[int] = set()
    for frame in frames:
        if id(frame.f_globals) not in met:
            met.add(id(frame.f_globals))
            yield frame.f_globals
    if _modules_known[0] != len(sys.modules):
        _modules_known = (len(sys.modules), [vars(m) for m in list(sys.modules.values()) if _is_known_as_users(m)])
    yield from (namespace for namespace in _modules_known[1] if id(namespace) not in met)


def _is_known_as_users(module: object) -> bool:
    """By the address of the module, which is kept, so that it stays its own."""
    known = _users.get(id(module))
    if known is None:
        known = _users[id(module)] = (module, _is_users(module))
    return known[1]


def _is_users(module: object) -> bool:
    path = attribute_of(module, "__file__")  # of thousands of modules: nothing is copied
    return type(module) is ModuleType and type(path) is str and kind_of_path(path) == USER


def _way_of(kind: type) -> int:
    """How the walk treats values of this class, by the class alone: no value is asked."""
    known = _ways.get(id(kind))
    if known is None:
        if len(_ways) > MAX_KINDS:
            _ways.clear()
        known = _ways[id(kind)] = (kind, _decide(kind))
    return known[1]


def _decide(kind: type) -> int:
    if issubclass(kind, torch.Tensor) or holds_arrays(kind):
        return _MEMORY
    for base, way in ((dict, _DICT), ((list, tuple, deque), _SEQUENCE), ((set, frozenset), _SET), (_CODE, _RUN)):
        if issubclass(kind, base):
            return way
    if issubclass(kind, torch.nn.Module):
        return _MODULE
    if issubclass(kind, type):
        return _CLASS
    return _OBJECT if _is_opened(kind) else _PASSED


def is_opened(kind: type) -> bool:
    """Do we look into instances of this class? Into those of the user's classes, and torch's modules and data sets."""
    return _way_of(kind) in (_MODULE, _OBJECT)


def _is_opened(kind: type) -> bool:
    home = class_members(kind).get("__module__")
    if type(home) is not str or home == "builtins":
        return False
    return _of_the_user(kind) or home.startswith(_OPENED)


def _of_the_user(kind: type) -> bool:
    home = class_members(kind).get("__module__")
    if type(home) is not str or home == "builtins":
        return False
    path = attributes_of(sys.modules.get(home)).get("__file__")
    return home == "__main__" or home not in sys.modules or (type(path) is str and kind_of_path(path) == USER)


# Functions that hold nothing, which is what nearly all do, by address while they live.
_barren: dict[int, weakref.ref[FunctionType]] = {}


def _is_barren(function: object) -> bool:
    known = _barren.get(id(function))
    return known is not None and known() is function


def _note_if_barren(function: FunctionType) -> None:
    if function.__closure__ or "__wrapped__" in attributes_of(function):
        return
    if all(id(type(item)) in _PLAIN_IDS for _, item in defaults_of(function)):
        if len(_barren) > MAX_KINDS:
            _barren.clear()
        _barren[id(function)] = weakref.ref(function)


_offset = type.__dict__["__weakrefoffset__"].__get__


def _allows_references(kind: type) -> bool:
    """Whether instances can be referred to weakly."""
    return bool(_offset(kind))


class _Walk:
    def __init__(self, around: list[tuple[int, int]] | None = None) -> None:
        self.census = Census()
        self._around = around
        self._queue: deque[tuple[Any, int, Step]] = deque()
        self._met: set[int] = set()
        # A second way to what was met before, as an entry of a container: `tracks[2]` for the `self` that is running.
        self._other_ways: dict[int, tuple[Any, Step]] = {}

    def add(self, value: Any, step: Step) -> None:
        way = _way_of(type(value))
        if way == _PASSED:
            return
        if way == _MEMORY:
            self._hold(value, step)
            # A gradient is held by its tensor, which adds to it at every backward.
            if is_exact_tensor(value) and value.requires_grad and compat.is_leaf(value) and value.grad is not None:
                self._hold(value.grad, Step(step, ".grad", "grad", id(value), "grad", step.depth + 1))
        elif id(value) in self._met:
            if step.kind == "item" and self._around is not None:
                self._other_ways.setdefault(id(value), (value, step))
        elif step.depth < MAX_DEPTH and not (way == _RUN and _is_barren(value)):
            self._met.add(id(value))
            self._queue.append((value, way, step))

    def _hold(self, value: Any, step: Step) -> None:
        if self._around is not None and not lies_in(value, self._around):
            return
        extent = extent_of(value)
        if extent is not None:
            self.census.holdings.append(Holding(step, value, extent))

    def add_other_ways(self) -> None:
        """The same slots again, by the ways that lead through containers."""
        ways: dict[int, Step] = {}
        for value, step in self._other_ways.values():
            ways[id(value)] = step
            if is_a(value, torch.nn.Module):
                ways.update((id(part), step) for part in attributes_of(value).values() if is_a(part, dict))
        for holding in list(self.census.holdings)[:MAX_OTHER_WAYS]:
            below: list[Step] = []
            for step in holding.step.up():
                below.append(step)
                way = ways.get(step.owner)
                if way is not None and way is not step.above:
                    self.census.holdings.append(Holding(_joined(way, below), holding.value, holding.extent))
                    break

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
        if way == _SEQUENCE:
            names = class_attribute(type(value), "_fields")
            for index, item in _ends(value):
                part = f".{names[index]}" if type(names) is tuple and index < len(names) else f"[{index}]"
                self._below(item, step, part, "item", value, index)
        elif way == _DICT:
            for key, item in _ends_of_dict(value):
                self._below(item, step, f"[{_shown(key)}]", "item", value, _hashable(key))
        elif way == _SET:
            for item in list(set.__iter__(value) if is_a(value, set) else frozenset.__iter__(value))[: FIRST + LAST]:
                self._below(item, step, "{…}", "item", value, id(item))
        elif way == _RUN:
            self._open_code(value, step)
        elif way == _MODULE:
            self._open_module(value, step)
        elif way == _CLASS:
            self._open_class(value, step)
        else:
            self._open_object(value, step)

    def _below(self, value: Any, step: Step, part: str, kind: Kind, owner: Any, key: object) -> None:
        if id(type(value)) not in _PLAIN_IDS:
            way = Step(step, part, kind, id(owner), key, step.depth + 1)
            if _allows_references(type(owner)):
                way.witness = weakref.ref(owner)
            self.add(value, way)

    def _count(self, kind: type) -> None:
        self.census.instances[id(kind)] = (kind, self.census.instances.get(id(kind), (kind, 0))[1] + 1)

    def _open_object(self, value: Any, step: Step) -> None:
        self._count(type(value))
        if is_a(value, torch.optim.Optimizer) and not _of_the_user(type(value)):
            self._open_optimizer(value, step)
            return
        for name, item in attributes_of(value).items():
            self._below(item, step, f".{name}", "attribute", value, name)
        for cls in bases_of(type(value)):
            for name, slot in class_members(cls).items():
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
            if name in ("_parameters", "_buffers", "_modules"):
                for key, inner in entries_of(item):
                    self._below(inner, step, f".{key}", "attribute", item, key)
            elif not (name.startswith("_") and "hooks" in name):
                self._below(item, step, f".{name}", "attribute", module, name)
            elif is_a(item, dict) and item:
                for hook in list(dict.values(item)):  # what hooks have captured
                    self._below(hook, step, "", "attribute", item, id(hook))

    def _open_class(self, cls: type, step: Step) -> None:
        # What torch keeps on its own classes is its own affair: DDP remembers there which module is running.
        if not _of_the_user(cls):
            return
        for name, item in list(class_members(cls).items()):
            # Of what Python calls by itself, `__init__` and its kin, the defaults count as those of others do.
            if not name.startswith("__") or type(item) is FunctionType:
                item = item.__func__ if is_exactly(item, (staticmethod, classmethod)) else item
                self._below(item, step, f".{name}", "class", cls, name)

    def _open_code(self, value: Any, step: Step) -> None:
        if is_a(value, MethodType):
            self._below(value.__self__, step, "", "attribute", value, "__self__")
            value = value.__func__
        if type(value) is FunctionType:
            _note_if_barren(value)
            if kind_of(value.__code__) == USER:
                self._open_function(value, step)
            else:  # what a decorator of a library has wrapped
                self._below(attributes_of(value).get("__wrapped__"), step, "", "cell", value, "__wrapped__")
        elif is_a(value, functools.partial):
            for index, item in enumerate((*value.args, *value.keywords.values())):
                self._below(item, step, f"({index})", "cell", value, index)
        elif type(value) is _Cached:
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
            if id(type(item)) not in _PLAIN_IDS:
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

    def add_young(self, tensor: Any) -> None:
        """Containers made of late that no name leads to: the list under `list(generator)` or a comprehension."""
        wanted = extent_of(tensor)
        if wanted is None:
            return
        for value in gc.get_objects(0) + gc.get_objects(1):
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


def _joined(above: Step, below: list[Step]) -> Step:
    """The same steps, innermost first, on another way."""
    for step in reversed(below):
        function: Any = step.function
        above = Step(above, step.part, step.kind, step.owner, step.key, above.depth + 1, step.frame, function)
    return above


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


def defaults_of(function: FunctionType) -> list[tuple[str, Any]]:
    """Arguments that have a default, with it."""
    code = function.__code__
    positional = function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(positional) : code.co_argcount]
    return [*zip(names, positional, strict=True), *(function.__kwdefaults__ or {}).items()]
