"""Who holds a piece of memory at the moment when it is about to be written.

Not only names: whatever the program's own code can get at later. Objects, containers, closures, generators that wait,
arrays; those that live on when the writing function has ended, and containers that only a function on the stack knows.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from types import FrameType, FunctionType, GeneratorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import torch

from torchsan.fix.trial import Holder
from torchsan.observe.holders.extents import Extent, extent_of, holds_arrays
from torchsan.observe.objects import attribute_of, class_members
from torchsan.observe.sites import USER, kind_of, kind_of_path
from torchsan.observe.tensors import memory_of

DEEPEST = 12
MOST_LOOKED_AT = 40_000
MOST_FOUND = 20
# Lives on after the functions that are on the stack now.
LASTING = -1
PLAIN = (list, tuple, set, frozenset, deque, dict)
_OPAQUE = (str, bytes, int, float, complex, bool, type(None), ModuleType, FrameType, torch.dtype, torch.device)
Inside = tuple[str, Any]


class Known:
    """What was there before the program began, looked through once: the rest is little."""

    def __init__(self) -> None:
        self.objects = _leading_on(gc.get_objects())
        gc.freeze()

    def close(self) -> None:
        self.objects.clear()
        gc.unfreeze()


def holders(written: torch.Tensor, frames: list[FrameType], known: Known) -> list[Holder]:
    """All but the names of the functions on the stack, innermost first."""
    search = _Search(written)
    here = (path_of(frames[0]), frames[0].f_lineno)
    for name, value in _lasting(frames, known):
        search.look(name, value, *here, LASTING)
    lasting = search.containers
    # However much lives on: what the functions on the stack hold is looked at.
    search.most = len(lasting) + MOST_LOOKED_AT
    for depth, frame in enumerate(frames):
        for name, value in list(frame.f_locals.items()):
            if type(value) in PLAIN and frame.f_locals is not frame.f_globals:
                search.seen = set(lasting)
                search.look(name, value, path_of(frame), frame.f_lineno, depth)
    return list(dict.fromkeys(search.found))[:MOST_FOUND]


def path_of(frame: FrameType) -> str:
    return os.path.realpath(frame.f_code.co_filename)


class _Search:
    def __init__(self, written: torch.Tensor) -> None:
        self.memory = memory_of(written)
        self.extent = extent_of(written)
        self.seen: set[int] = set()
        # Containers that lasting objects lead to.
        self.containers: set[int] = set()
        self.found: list[Holder] = []
        self.most = MOST_LOOKED_AT

    def look(self, name: str, value: Any, path: str, line: int, depth: int) -> None:
        """Everything that can be got at from here, breadth first."""
        todo: deque[tuple[str, Any, int]] = deque([(name, value, 0)])
        while todo and len(self.seen) < self.most:
            label, one, far = todo.popleft()
            if isinstance(one, _OPAQUE):
                continue
            if self._is_it(one):
                self.found.append(Holder(path, line, label, depth, are_apart(self.extent, one)))
                continue
            if id(one) in self.seen or far > DEEPEST:
                continue
            self.seen.add(id(one))
            if depth == LASTING:
                self.containers.add(id(one))
            todo.extend((inner, item, far + 1) for inner, item in _inside(label, one))

    def _is_it(self, value: Any) -> bool:
        if isinstance(value, torch.Tensor):
            return memory_of(value) == self.memory
        return holds_arrays(type(value)) and self.extent is not None and not are_apart(self.extent, value)


def are_apart(written: Extent | None, value: Any) -> bool:
    """Do they lie in different places, though perhaps of one memory?"""
    other = extent_of(value)
    return written is not None and other is not None and not written.meets(other)


def _lasting(frames: list[FrameType], known: Known) -> Iterator[Inside]:
    """Variables of the program's modules, objects of its classes, its functions and all that waits to be called."""
    running = {id(frame.f_globals) for frame in frames if frame.f_locals is frame.f_globals}
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if type(names) is dict and _is_users_file(names.get("__file__")) and id(names) not in running:
            yield "globals", dict(names)
    for frame in frames:
        here = list(frame.f_locals.items())
        # Tensors there are names, which are told apart from holders; but they may have attributes.
        yield from ((name, vars(value)) for name, value in here if isinstance(value, torch.Tensor))
        if id(frame.f_globals) in running:
            yield from ((n, v) for n, v in list(frame.f_globals.items()) if not isinstance(v, torch.Tensor))
            yield from ((n, vars(v)) for n, v in list(frame.f_globals.items()) if isinstance(v, torch.Tensor))
    yield from ((_name_of(type(value)), value) for value in known.objects)
    yield from ((_name_of(type(value)), value) for value in _leading_on(gc.get_objects()))


def _leading_on(objects: list[Any]) -> list[Any]:
    """Those by which the program gets at others. There are many objects, and few kinds.

    Classes are told by their addresses: a metaclass may refuse to be hashed or compared.
    """
    kinds = {id(kind): kind for kind in map(type, objects)}
    wanted = {address for address, kind in kinds.items() if _leads_on(kind)}
    found = [value for value in objects if id(type(value)) in wanted]
    return [value for value in found if type(value) is not FunctionType or _is_written(value)]


_name_of = type.__dict__["__name__"].__get__


def _is_written(function: FunctionType) -> bool:
    """The program's own; those that named tuples and dataclasses make hold nothing, and are thousands."""
    return kind_of(function.__code__) == USER and not function.__code__.co_filename.startswith("<string")


def _leads_on(kind: type) -> bool:
    known = _kinds.get(id(kind))
    if known is None or known[0]() is not kind:
        plain = kind is FunctionType or kind is GeneratorType or kind is functools.partial
        leads = plain or _is_users(kind) or issubclass(kind, torch.nn.Module)
        known = _kinds[id(kind)] = (weakref.ref(kind), leads)
    return known[1]


_kinds: dict[int, tuple[weakref.ref[type], bool]] = {}


def _is_users(kind: type) -> bool:
    module = class_members(kind).get("__module__")
    if type(module) is not str:
        return False
    return module == "__main__" or _is_users_file(attribute_of(sys.modules.get(module), "__file__"))


def _is_users_file(path: Any) -> bool:
    return isinstance(path, str) and kind_of_path(path) == USER


def _inside(label: str, value: Any) -> Iterator[Inside]:
    """What an object leads to, by the names under which it does; its own name where it has none for them."""
    kind = type(value)
    if isinstance(value, dict):
        if "__builtins__" not in value:
            pairs = ((key if isinstance(key, str) else label, item) for key, item in list(value.items()))
            yield from (pair for pair in pairs if not pair[0].startswith("__"))
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        yield from ((label, item) for item in list(value))
    elif isinstance(value, torch.Tensor):
        yield from vars(value).items() if type(getattr(value, "__dict__", None)) is dict else ()
    elif isinstance(value, FunctionType):
        yield from _of_function(label, value)
    elif isinstance(value, MethodType):
        yield from ((label, value.__self__), (label, value.__func__))
    elif isinstance(value, functools.partial):
        yield from ((label, value.func), (label, value.args), (label, value.keywords))
    elif isinstance(value, GeneratorType):
        if value.gi_frame is not None and not value.gi_running and kind_of(value.gi_code) == USER:
            yield from list(value.gi_frame.f_locals.items())
    elif isinstance(value, type):
        yield from ((k, v) for k, v in vars(value).items() if not k.startswith("__")) if _is_users(value) else ()
    elif kind.__module__ in ("builtins", "itertools", "_collections", "collections"):
        yield from ((label, item) for item in gc.get_referents(value) if not isinstance(item, type))
    elif kind.__module__.partition(".")[0] not in ("torchsan", "numpy"):
        yield from _of_object(value)


def _of_function(label: str, function: FunctionType) -> Iterator[Inside]:
    if kind_of(function.__code__) != USER:
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # never filled
    yield from ((label, item) for item in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()))
    yield from vars(function).items()


def _of_object(value: Any) -> Iterator[Inside]:
    # By the type's own name: to ask some objects for their attributes makes them act.
    if type(getattr(value, "__dict__", None)) is dict:
        yield from list(vars(value).items())
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            descriptor = vars(base).get(name)
            if isinstance(descriptor, MemberDescriptorType):
                try:
                    yield name, descriptor.__get__(value)
                except AttributeError:
                    continue  # never set
