"""Every slot from which the program can reach a tensor or an array, with the path that leads to it.

Walks down from the frames that run and from the globals of the user's modules. Objects of libraries are not opened,
except modules and data sets of torch. Nothing that is found outlives the census: slots are known by their owner's
identity and their key.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import FrameType, ModuleType
from typing import Any

from torchsan.observe.holders.classes import CLASS, PASSED, RUN, is_barren, way_of
from torchsan.observe.holders.extents import stretches_of
from torchsan.observe.holders.slots import Census, Kind, Step
from torchsan.observe.holders.walk import Walk
from torchsan.observe.names import local_names
from torchsan.observe.objects import attribute_of, entries_of
from torchsan.observe.sites import USER, kind_of_path, user_frames


def take_census(
    frame: FrameType | None, *, young: Any = None, grown: bool = False, around: Iterable[Any] | None = None
) -> Census:
    """All holders that the user's frames at and above this one, and the user's modules, can reach.

    `young`: a tensor to look for in containers that no name holds yet, as the list that `list(generator)` is making.
    `grown`: it may have been begun a while ago.
    `around`: only holders of the memory of these are wanted.
    """
    walk = Walk(None if around is None else stretches_of(around))
    frames = user_frames(frame, 24)
    shown = {id(one.f_globals) for one in frames if one.f_code.co_name == "<module>"}
    later: list[tuple[Any, Step]] = []
    # Functions and classes first, so that what they keep is known as theirs and not by the name of who uses it.
    for namespace in _namespaces(frames):
        for name, value in entries_of(namespace):
            way = way_of(type(value))
            if way == CLASS or (way == RUN and not is_barren(value)):
                walk.add(value, Step(None, name, "global", id(namespace), name))
            elif way not in (PASSED, RUN) and id(namespace) not in shown and not name.startswith("__"):
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
        walk.add_young(young, grown=grown)
    return walk.census


# For how many modules, and which was the last of them, the user's were looked up.
_modules_known: tuple[int, int, list[dict[str, Any]]] = (0, 0, [])
_users: dict[int, tuple[object, bool]] = {}


def _namespaces(frames: Iterable[FrameType]) -> Iterator[dict[str, Any]]:
    """Globals of the frames, then of every module of the user's."""
    global _modules_known
    met: set[int] = set()
    for frame in frames:
        if id(frame.f_globals) not in met:
            met.add(id(frame.f_globals))
            yield frame.f_globals
    count, last = len(sys.modules), id(next(reversed(sys.modules.values()), None))
    if _modules_known[:2] != (count, last):
        _modules_known = (count, last, [vars(m) for m in list(sys.modules.values()) if _is_known_as_users(m)])
    yield from (namespace for namespace in _modules_known[2] if id(namespace) not in met)


def _is_known_as_users(module: object) -> bool:
    """By the address of the module, which is kept, so that it stays its own."""
    known = _users.get(id(module))
    if known is None:
        known = _users[id(module)] = (module, _is_users(module))
    return known[1]


def _is_users(module: object) -> bool:
    path = attribute_of(module, "__file__")  # of thousands of modules: nothing is copied
    return type(module) is ModuleType and type(path) is str and kind_of_path(path) == USER
