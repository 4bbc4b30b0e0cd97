"""Every slot from which the program can reach a tensor or an array, with the path that leads to it.

Walks down from the frames that run and from the globals of the user's modules, through containers, attributes, closures,
defaults, classes, cached results and generators. Objects of libraries are not opened, except modules and data sets of
torch. Nothing that is found outlives the census: slots are known by the identity of their owner and their key.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any, Literal

import torch

from torchsan.observe.holders.extents import Extent, extent_of, holds_memory
from torchsan.observe.names import local_names
from torchsan.observe.sites import USER, kind_of, kind_of_path, user_frames

Kind = Literal["local", "global", "attribute", "item", "default", "cell", "class", "cache", "young", "grad"]
MAX_OBJECTS = 20_000
MAX_DEPTH = 9
# Of longer containers the first and the last entries are looked at.
FIRST, LAST = 16, 48
_PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.Size, CodeType, ModuleType)
_OPENED = ("torch.nn", "torch.utils.data", "torchvision.transforms")
_Cached = type(functools.lru_cache(maxsize=1)(lambda: None))


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
    # How many instances of each of the user's classes were met, and the modules with the way to them.
    instances: dict[type, int] = field(default_factory=dict)
    modules: list[tuple[Step, torch.nn.Module]] = field(default_factory=list)
    complete: bool = True

    def of(self, extent: Extent) -> list[Holding]:
        return [h for h in self.holdings if h.extent.meets(extent)]


def take_census(frame: FrameType | None, *, young: Any = None) -> Census:
    """All holders that the user's frames at and above this one, and the user's modules, can reach.

    `young`: a tensor to look for in containers that no name holds yet, as the list that `list(generator)` is making.
    """
    walk = _Walk()
    frames = user_frames(frame, 24)
    for one in frames:
        for name, value in local_names(one).items():
            kind: Kind = "global" if one.f_code.co_name == "<module>" else "local"
            if not name.startswith("__"):
                walk.add(value, Step(None, name, kind, id(one), name, 0, one))
    seen = {id(one.f_globals) for one in frames if one.f_code.co_name == "<module>"}
    for namespace in _namespaces(frames):
        if id(namespace) not in seen:
            seen.add(id(namespace))
            for name, value in list(namespace.items()):
                if not name.startswith("__"):
                    walk.add(value, Step(None, name, "global", id(namespace), name, 0))
    walk.run()
    if young is not None:
        walk.add_young(young)
    return walk.census


_modules_known: tuple[int, list[dict[str, Any]]] = (0, [])


def _namespaces(frames: Iterable[FrameType]) -> Iterator[dict[str, Any]]:
    """Globals of the frames, then of every module of the user's."""
    global _modules_known
    for frame in frames:
        yield frame.f_globals
    if _modules_known[0] != len(sys.modules):
        _modules_known = (len(sys.modules), [vars(m) for m in list(sys.modules.values()) if _is_users(m)])
    yield from _modules_known[1]


def _is_users(module: Any) -> bool:
    path = getattr(module, "__file__", None)
    return isinstance(module, ModuleType) and isinstance(path, str) and kind_of_path(path) == USER


_opened: dict[type, bool] = {}


def is_opened(kind: type) -> bool:
    """Do we look into instances of this class? Into those of the user's classes, and torch's modules and data sets."""
    known = _opened.get(kind)
    if known is None:
        home = kind.__module__
        module = sys.modules.get(home)
        path = getattr(module, "__file__", None)
        users = home == "__main__" or module is None or (isinstance(path, str) and kind_of_path(path) == USER)
        known = users or home.startswith(_OPENED) or issubclass(kind, torch.nn.Module)
        if home == "builtins" or issubclass(kind, (torch.Tensor, torch.optim.Optimizer)):
            known = False
        if home != "__main__":
            _opened[kind] = known
    return known


class _Walk:
    def __init__(self) -> None:
        self.census = Census()
        self._queue: deque[tuple[Any, Step]] = deque()
        self._met: set[int] = set()

    def add(self, value: Any, step: Step) -> None:
        if isinstance(value, _PLAIN):
            return
        if holds_memory(value):
            extent = extent_of(value)
            if extent is not None:
                self.census.holdings.append(Holding(step, value, extent))
            return
        if step.depth < MAX_DEPTH and id(value) not in self._met:
            self._met.add(id(value))
            self._queue.append((value, step))

    def run(self) -> None:
        count = 0
        while self._queue:
            value, step = self._queue.popleft()
            count += 1
            if count > MAX_OBJECTS:
                self.census.complete = False
                self._queue.clear()
                return
            try:
                self._open(value, step)
            except Exception:
                continue  # an object that does not like to be looked at

    def _open(self, value: Any, step: Step) -> None:
        if isinstance(value, (list, tuple, deque)):
            names = getattr(type(value), "_fields", None)
            for index, item in _ends(value):
                part = f".{names[index]}" if names else f"[{index}]"
                self._below(item, step, part, "item", id(value), index)
        elif isinstance(value, dict):
            for key, item in _ends_of_dict(value):
                self._below(item, step, f"[{_shown(key)}]", "item", id(value), _hashable(key))
        elif isinstance(value, (set, frozenset)):
            for item in list(value)[: FIRST + LAST]:
                self._below(item, step, "{…}", "item", id(value), id(item))
        elif isinstance(value, (FunctionType, MethodType, functools.partial, _Cached, GeneratorType, type)):
            self._open_code(value, step)
        elif isinstance(value, torch.nn.Module):
            self._open_module(value, step)
        elif is_opened(type(value)):
            self._open_object(value, step)

    def _below(self, value: Any, step: Step, part: str, kind: Kind, owner: int, key: object) -> None:
        if not isinstance(value, _PLAIN):
            self.add(value, Step(step, part, kind, owner, key, step.depth + 1))

    def _open_object(self, value: Any, step: Step) -> None:
        self.census.instances[type(value)] = self.census.instances.get(type(value), 0) + 1
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            for name, item in list(attributes.items()):
                self._below(item, step, f".{name}", "attribute", id(attributes), name)
        for cls in type(value).__mro__:
            slots = vars(cls).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                descriptor = vars(cls).get(name)
                if type(descriptor).__name__ == "member_descriptor" and hasattr(value, name):
                    self._below(getattr(value, name), step, f".{name}", "attribute", id(value), name)

    def _open_module(self, module: torch.nn.Module, step: Step) -> None:
        self.census.modules.append((step, module))
        self.census.instances[type(module)] = self.census.instances.get(type(module), 0) + 1
        for name, item in list(vars(module).items()):
            if name in ("_parameters", "_buffers", "_modules"):
                for key, inner in list(item.items()):
                    self._below(inner, step, f".{key}", "attribute", id(item), key)
            elif not (name.startswith("_") and "hooks" in name):
                self._below(item, step, f".{name}", "attribute", id(vars(module)), name)
            elif isinstance(item, dict):
                for hook in list(item.values()):  # what hooks have captured
                    self._below(hook, step, "", "attribute", id(item), id(hook))

    def _open_code(self, value: Any, step: Step) -> None:
        if isinstance(value, MethodType):
            self._below(value.__self__, step, "", "attribute", id(value), "__self__")
            value = value.__func__
        if isinstance(value, FunctionType):
            if kind_of(value.__code__) == USER:
                self._open_function(value, step)
        elif isinstance(value, functools.partial):
            for index, item in enumerate((*value.args, *value.keywords.values())):
                self._below(item, step, f"({index})", "cell", id(value), index)
        elif isinstance(value, _Cached):
            wrapped = value.__wrapped__
            if isinstance(wrapped, FunctionType) and kind_of(wrapped.__code__) == USER:
                for item in gc.get_referents(value):
                    if item is not wrapped and item is not vars(value):
                        self._below(item, step, "(…)", "cache", id(value), id(item))
        elif isinstance(value, GeneratorType):
            if value.gi_frame is not None and kind_of(value.gi_code) == USER:
                for name, item in local_names(value.gi_frame).items():
                    self._below(item, step, f".{name}", "cell", id(value), name)
        elif isinstance(value, type) and is_opened(value):
            for name, item in list(vars(value).items()):
                if not name.startswith("__"):
                    item = getattr(item, "__func__", item)
                    self._below(item, step, f".{name}", "class", id(value), name)

    def _open_function(self, function: FunctionType, step: Step) -> None:
        for name, item in defaults_of(function):
            if not isinstance(item, _PLAIN):
                way = Step(step, f"({name})", "default", id(function), name, step.depth + 1, None, function)
                self.add(item, way)
        cells = function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
            try:
                self._below(cell.cell_contents, step, f".{name}", "cell", id(cell), name)
            except ValueError:
                continue  # not bound yet
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None:
            self._below(wrapped, step, "", step.kind, id(function), "__wrapped__")

    def add_young(self, tensor: Any) -> None:
        """Containers made of late that no name leads to: the list under `list(generator)` or a comprehension."""
        wanted = extent_of(tensor)
        if wanted is None:
            return
        known = {h.step.owner for h in self.census.holdings}
        for generation in (0, 1):
            for value in gc.get_objects(generation):
                if type(value) is list and id(value) not in known and id(value) not in self._met:
                    self._young_list(value, wanted)

    def _young_list(self, value: list[Any], wanted: Extent) -> None:
        for index, item in _ends(value):
            inner = item[0] if type(item) is tuple and item else item
            if isinstance(inner, torch.Tensor) and extent_of(inner) == wanted:
                step = Step(None, f"[{index}]", "young", id(value), index)
                self.census.holdings.append(Holding(step, inner, wanted))


def _ends(values: Any) -> Iterator[tuple[int, Any]]:
    if len(values) <= FIRST + LAST:
        yield from enumerate(list(values))
        return
    for index in range(FIRST):
        yield index, values[index]
    for index in range(len(values) - LAST, len(values)):
        yield index, values[index]


def _ends_of_dict(values: dict[Any, Any]) -> list[tuple[Any, Any]]:
    items = list(values.items())
    return items if len(items) <= FIRST + LAST else [*items[:FIRST], *items[-LAST:]]


def _shown(key: Any) -> str:
    text = repr(key) if isinstance(key, (str, int, float, bool)) else "…"
    return text if len(text) <= 40 else "…"


def _hashable(key: Any) -> object:
    return key if isinstance(key, (str, int, float, bool, tuple)) else id(key)


def defaults_of(function: FunctionType) -> list[tuple[str, Any]]:
    """Arguments that have a default, with it."""
    code = function.__code__
    positional = function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(positional) : code.co_argcount]
    return [*zip(names, positional, strict=True), *(function.__kwdefaults__ or {}).items()]
