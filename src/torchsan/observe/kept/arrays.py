"""NumPy arrays that hold objects: the collector knows neither what they hold nor, at times, who holds them.

An array takes no part in collection. What has nothing but such values (an object's dictionary, a tuple) is not tracked
either, so that the collector names it only as a part of its own holder.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from torchsan.observe.kept.contents import ITEMS, flat
from torchsan.observe.names import local_names
from torchsan.observe.objects import is_exactly
from torchsan.observe.sites import USER, kind_of

# How many untracked containers may lie within each other.
DEPTH = 4


class Arrays:
    """Arrays of objects that are alive, what is in them, and the untracked containers that lead to them."""

    def __init__(self, frames: Iterable[FrameType]) -> None:
        self._held: list[tuple[Any, set[int]]] = []
        self._above: dict[int, list[Any]] = {}
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return
        self._kind = numpy.ndarray
        found: dict[int, Any] = {}
        for holder in gc.get_objects():
            for one in self._within(gc.get_referents(holder)):
                found[id(one)] = one
        for frame in frames:
            if kind_of(frame.f_code) == USER:
                for one in self._within(local_names(frame).values()):
                    found[id(one)] = one
        self._held = [(one, {id(item) for item in items(one)}) for one in found.values()]

    def own(self) -> set[int]:
        """Addresses of what holds arrays here, for our sake."""
        return {id(one) for one in (self._held, *self._held, self._above, *self._above.values())}

    def holders(self, level: list[Any], wanted: set[int]) -> Iterator[tuple[Any, list[int]]]:
        """Whoever holds some of these and is not known to the collector, and what of them."""
        for array, held in self._held:
            inside = wanted & held
            if inside:
                yield array, list(inside)
        for one in level:
            for container in self._above.get(id(one), ()):
                yield container, [id(one)]

    def _within(self, values: Iterable[Any], depth: int = 0) -> Iterator[Any]:
        for one in values:
            kind = type(one)
            if kind is self._kind:
                if one.dtype.hasobject and 0 < one.size <= ITEMS:
                    yield one
            elif (kind is dict or kind is tuple) and depth < DEPTH and not gc.is_tracked(one):
                parts = gc.get_referents(one)
                inner = list(self._within(parts, depth + 1))
                if inner:
                    for part in parts:
                        if is_exactly(part, (self._kind, dict, tuple)):
                            self._above.setdefault(id(part), []).append(one)
                yield from inner


def items(array: Any) -> Iterator[Any]:
    """Of a structured array, what is in its records."""
    for one in flat(array):
        if array.dtype.names and type(one) is tuple:
            yield from one
        else:
            yield one
