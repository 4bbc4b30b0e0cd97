"""Who holds an object: asked of the garbage collector, upwards to a name, and never of the objects themselves.

Looking down from the program's names finds only what we know how to open. The collector knows every reference between
objects that it tracks, whatever their class: log records, hooks, suspended generators, objects of any library. What it
does not tell is added: the variables of functions that run, arrays of objects, the gradient of a leaf.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from _thread import get_ident
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from types import CellType, CodeType, FrameType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import torch

from torchsan.observe.holders.classes import defaults_of
from torchsan.observe.holders.slots import Kind, Step
from torchsan.observe.kept.arrays import Arrays
from torchsan.observe.kept.contents import is_any, is_array
from torchsan.observe.names import local_names
from torchsan.observe.objects import (
    _DICT_SLOTS,
    MODULE_PARTS,
    attributes_of,
    class_attribute,
    class_members,
    is_a,
    is_exactly,
    is_tensor,
    members_of,
)
from torchsan.observe.sites import LIBRARY, OURS, TORCH, USER, kind_of, kind_of_path

LEVELS, WIDTH = 18, 48
# Seconds after which the way up is left: where every start has a name, and in any case.
LONG, LONGEST = 0.15, 0.6
_SEQUENCES = (list, tuple, deque)
_ENDS = (ModuleType, type, CodeType)


@dataclass(slots=True)
class Name:
    """A variable: of a function that runs, of a module or of a class."""

    text: str
    kind: Kind
    owner: int
    frame: FrameType | None = None
    users: bool = True
    # Of a module's variable, where it lies.
    namespace: dict[str, Any] | None = None


class Upward:
    """All that holds the given objects, directly or through others."""

    def __init__(self, starts: list[Any], gradients: dict[int, Any] | None = None, *, arrays: bool = False) -> None:
        self.objects: dict[int, Any] = {}
        self.held_by: dict[int, set[int]] = {}
        self.holds: dict[int, set[int]] = {}
        self.names: dict[int, list[Name]] = {}
        # The dictionaries in which objects keep their attributes.
        self.attributes: set[int] = set()
        self._gradients = gradients or {}
        self._variables = _running_variables()
        self._namespaces = _namespaces()
        self._arrays = Arrays(_frames()) if arrays else None
        self._ours = {id(self.objects), id(self._gradients)}
        if self._arrays is not None:
            self._ours |= self._arrays.own()
        self._climb(starts)
        self._join_attributes()

    def _climb(self, starts: list[Any]) -> None:
        level = list(starts)
        self._ours.add(id(starts))
        for one in level:
            self.objects[id(one)] = one
        started = time.process_time()
        for _ in range(LEVELS):
            if not level:
                return
            level = self._above(level)
            spent = time.process_time() - started
            if spent > LONGEST or (spent > LONG and all(self.way(id(one)) is not None for one in starts)):
                return

    def _above(self, level: list[Any]) -> list[Any]:
        wanted = {id(one) for one in level}
        self._ours |= {id(level), id(wanted)}
        above: list[Any] = []
        self._ours.add(id(above))
        for holder, held in self._holders(level, wanted):
            if id(holder) not in self.objects:
                if len(above) >= WIDTH:
                    continue
                self.objects[id(holder)] = holder
                above.append(holder)
            for child in held:
                self.holds.setdefault(id(holder), set()).add(child)
                self.held_by.setdefault(child, set()).add(id(holder))
        return above

    def _holders(self, level: list[Any], wanted: set[int]) -> Iterator[tuple[Any, list[int]]]:
        for one in level:
            for name in self._variables.get(id(one), ()):
                self.names.setdefault(id(one), []).append(name)
            leaf = self._gradients.get(id(one))
            if leaf is not None:
                yield leaf, [id(one)]
        if self._arrays is not None:
            yield from self._arrays.holders(level, wanted)
        holders = gc.get_referrers(*level)
        self._ours.add(id(holders))
        for holder in holders:
            if id(holder) in self._ours or not self._is_way_up(holder):
                continue
            below = [id(one) for one in gc.get_referents(holder) if id(one) in wanted]
            if id(holder) in self._namespaces:
                self._name_in(holder, wanted)
            elif type(holder) is ModuleType:
                # What a module of C's holds beside its variables, as `atexit` does.
                self.names.setdefault(id(holder), []).append(
                    Name(_module_name(holder), "global", id(holder), None, False)
                )
                yield holder, below
            elif type(holder) is type or issubclass(type(holder), type):
                self._name_of_class(holder, below)
            else:
                yield holder, below

    def _join_attributes(self) -> None:
        """An object and the dictionary of its attributes are one, and so are a function and its closure."""
        for number, held in list(self.objects.items()):
            if type(held) is not dict and type(held) is not tuple:
                continue
            above = self.held_by.get(number, set())
            owners = {one for one in above if any(part is held for part in _own_parts(self.objects.get(one)))}
            if not owners:
                continue
            below = self.holds.get(number, set())
            for owner in owners:
                self.holds[owner] = (self.holds.get(owner, set()) - {number}) | below
                for child in below:
                    self.held_by[child].add(owner)
            for child in below:
                self.held_by[child].discard(number)
            self.held_by[number] -= owners

    def _is_way_up(self, holder: Any) -> bool:
        kind = type(holder)
        if kind is FrameType:
            return id(holder) not in self._variables and kind_of(holder.f_code) not in (OURS, TORCH)
        if kind is GeneratorType and kind_of(holder.gi_code) == OURS:
            return False
        module = class_members(kind).get("__module__")
        return kind is not CodeType and not (type(module) is str and module.startswith("torchsan."))

    def _name_in(self, namespace: dict[str, Any], wanted: set[int]) -> None:
        module = namespace.get("__name__")
        path = namespace.get("__file__")
        kind = kind_of_path(path) if type(path) is str else USER
        if kind == OURS:
            return
        for text, value in list(namespace.items()):
            if id(value) in wanted and type(text) is str and not text.startswith("__"):
                shown = text if kind == USER else f"{module}.{text}"
                self.names.setdefault(id(value), []).append(
                    Name(shown, "global", id(namespace), None, kind == USER, namespace)
                )

    def _name_of_class(self, cls: type, held: list[int]) -> None:
        shown = class_members(type).get("__name__")
        text = shown.__get__(cls) if shown is not None else "class"
        for one in held:
            self.attributes.add(one)
            self.names.setdefault(one, []).append(Name(text, "class", id(cls)))

    # -- ways ---------------------------------------------------------------------------------------

    def reach(self, start: int) -> set[int]:
        """Everything that holds this object."""
        found, todo = {start}, [start]
        while todo:
            for above in self.held_by.get(todo.pop(), ()):
                if above not in found:
                    found.add(above)
                    todo.append(above)
        return found

    def way(self, target: int) -> Step | None:
        """The shortest way from a name of the user's to an object; None where no name leads to it."""
        for users in (True, False):
            met = {target}
            todo: deque[tuple[int, tuple[int, ...]]] = deque([(target, (target,))])
            while todo:
                at, path = todo.popleft()
                name = next((one for one in self.names.get(at, ()) if one.users == users), None)
                if name is not None:
                    return self._steps(name, path)
                for above in self.held_by.get(at, ()):
                    if above not in met:
                        met.add(above)
                        todo.append((above, (above, *path)))
        return None

    def _steps(self, name: Name, path: tuple[int, ...]) -> Step:
        step = Step(None, name.text, name.kind, name.owner, name.text, 0, name.frame)
        for above, below in pairwise(path):
            part, kind, key = self.part(above, below)
            step = Step(step, part, kind, above, key, step.depth + 1)
        return step

    def part(self, above: int, below: int) -> tuple[str, Kind, object]:
        """How the one is written as part of the other."""
        holder, value = self.objects[above], self.objects[below]
        if is_a(holder, dict):
            for key, item in list(dict.items(holder)):
                if item is value:
                    return self._entry(above, key)
            return "", "attribute", None
        if is_any(holder, _SEQUENCES):
            for index, item in enumerate(list(_iterate(holder))):
                if item is value:
                    return f"[{index}]", "item", index
        if is_any(holder, (set, frozenset)) or is_array(holder):
            return "[…]", "item", below
        if is_tensor(holder) and self._gradients.get(below) is holder:
            return ".grad", "attribute", "grad"
        return self._attribute(holder, value)

    def _entry(self, above: int, key: Any) -> tuple[str, Kind, object]:
        if above in self.attributes and type(key) is str:
            return f".{key}", "attribute", key
        return f"[{key!r}]" if is_exactly(key, (str, int, bool)) else "[…]", "item", id(key)

    def _attribute(self, holder: Any, value: Any) -> tuple[str, Kind, object]:
        if type(holder) is FunctionType:
            for name, cell in zip(holder.__code__.co_freevars, holder.__closure__ or (), strict=True):
                if cell is value:
                    return f".{name}", "cell", name
            for name, default in defaults_of(holder):
                if default is value:
                    return f"({name})", "default", name
            return "", "attribute", None
        if is_exactly(holder, (CellType, MethodType)):
            return "", "attribute", None
        frame = holder.gi_frame if type(holder) is GeneratorType else holder if type(holder) is FrameType else None
        named = local_names(frame) if frame is not None else attributes_of(holder)
        for name, item in (*named.items(), *_slots(holder)):
            if item is value:
                if name in MODULE_PARTS and is_a(holder, torch.nn.Module):
                    self.attributes.add(id(item))
                    return "", "attribute", name
                return f".{name}", "attribute", name
        return "", "attribute", None


def _iterate(values: Any) -> Iterator[Any]:
    kind: Any = next(kind for kind in _SEQUENCES if is_any(values, (kind,)))
    found: Iterator[Any] = kind.__iter__(values)
    return found


def _module_name(module: ModuleType) -> str:
    name = vars(module).get("__name__")
    return name if type(name) is str else "a module"


def _own_parts(holder: Any) -> Iterator[Any]:
    """The dictionary of an object's attributes itself; of a function its closure and defaults."""
    if type(holder) is FunctionType:
        yield from (holder.__closure__, holder.__defaults__, holder.__kwdefaults__)
    slot = class_attribute(type(holder), "__dict__")
    if is_exactly(slot, _DICT_SLOTS) and not is_any(holder, _ENDS):
        with contextlib.suppress(AttributeError, TypeError):
            yield slot.__get__(holder)


def _slots(holder: Any) -> Iterator[tuple[str, Any]]:
    for cls in type.__dict__["__mro__"].__get__(type(holder)):
        for name, slot in members_of(cls):
            if type(slot) is _Member and not name.startswith("__"):
                try:
                    yield name, slot.__get__(holder)
                except (AttributeError, TypeError):
                    continue


class _Slotted:
    __slots__ = ("one",)


_Member = type(_Slotted.__dict__["one"])


def _running_variables() -> dict[int, list[Name]]:
    """Variables of the functions that run, in every thread, by the address of their value; and the frames' own."""
    found: dict[int, list[Name]] = {}
    for frame in _frames():
        found.setdefault(id(frame), [])
        if frame.f_code.co_name == "<module>" or kind_of(frame.f_code) not in (USER, LIBRARY):
            continue
        users = kind_of(frame.f_code) == USER
        for name, value in local_names(frame).items():
            found.setdefault(id(value), []).append(Name(name, "local", id(frame), frame, users))
    return found


def _frames() -> list[FrameType]:
    """The frames of all threads, but for ours: a frame that is held by one of its own variables would live on."""
    threads = sys._current_frames()
    threads[get_ident()] = sys._getframe(1)
    found: list[FrameType] = []
    for start in threads.values():
        frame: FrameType | None = start
        while frame is not None:
            if kind_of(frame.f_code) != OURS:
                found.append(frame)
            frame = frame.f_back
    return found


def _namespaces() -> set[int]:
    found = {id(vars(module)) for module in list(sys.modules.values()) if type(module) is ModuleType}
    return found | {id(frame.f_globals) for frame in _frames()}
