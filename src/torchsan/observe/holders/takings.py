"""When each slot took the memory it holds, and what the memory held then."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from torchsan.observe.holders.extents import Extent, contents, version_of
from torchsan.observe.holders.slots import Census, Holding

MAX_SLOTS = 20_000


@dataclass(frozen=True, slots=True)
class Taking:
    """What a slot held when it was first seen to hold this very object."""

    value: weakref.ref[Any]
    extent: Extent
    version: int | None
    contents: int | None
    tick: int
    # The slot's owner, or the nearest one above it that can be referred to.
    owner: weakref.ref[Any] | None = None
    # Another object of this memory was there before, and the memory has been written since.
    retaken: bool = False


class Takings:
    """Slots are known by the identity of their owner and their key, while owner and object are the same.

    A list that is made anew (`frames = frames[-3:]`) or moved up (`frames.pop(0)`) goes on holding what it held.
    """

    def __init__(self) -> None:
        self.tick = 0
        self._known: dict[tuple[int, object], Taking] = {}
        # By the name of a container and an object in it: when the entries of this name took the object, in their order.
        self._entries: dict[tuple[object, ...], list[Taking]] = {}
        # What each place of a container of this name took last, and how often that had been written.
        self._places: dict[tuple[object, ...], tuple[Extent, int | None]] = {}

    def note(self, census: Census) -> None:
        """Remember what is new in this census."""
        self.tick += 1
        entries: dict[tuple[object, ...], list[Holding]] = {}
        for holding in census.holdings:
            if holding.step.kind == "item" and type(holding.step.key) is int:
                entries.setdefault((holding.family, id(holding.value)), []).append(holding)
            elif self.of(holding) is None:
                self._known[holding.slot] = self._taken(holding)
        for key, holdings in entries.items():
            self._note_entries(key, holdings)
        if len(self._places) > MAX_SLOTS:
            self._places.clear()
        if len(self._known) > MAX_SLOTS:
            self._known = {slot: t for slot, t in self._known.items() if t.value() is not None}
            self._entries = {key: takings for key, takings in self._entries.items() if takings[0].value() is not None}

    def _note_entries(self, key: tuple[object, ...], holdings: list[Holding]) -> None:
        """One object in some entries of one container. What is new has come behind what was there."""
        value, extent = holdings[0].value, holdings[0].extent
        # A function that is called again has names of its own, though perhaps a frame at the same address.
        lasting = next((s for s in holdings[0].step.up() if s.kind != "item"), holdings[0].step).kind != "local"
        known_before = self._entries.get(key, ()) if lasting else ()
        before = [t for t in known_before if t.value() is value and t.extent == extent]
        known = [self.of(holding) for holding in holdings]
        moved = [t for t in before if all(t is not one for one in known)]
        self._entries[key] = takings = []
        for taking, holding in zip(known, holdings, strict=True):
            if taking is None:
                taking = self._moved(moved.pop(0), holding) if moved else self._taken(holding)
                self._known[holding.slot] = taking
            takings.append(taking)

    def _moved(self, taking: Taking, holding: Holding) -> Taking:
        return replace(taking, owner=_owner(holding))

    def _taken(self, holding: Holding) -> Taking:
        # Parameters of modules are many and large; of them the version is enough.
        looked = contents(holding.value) if holding.step.kind != "attribute" else None
        version = version_of(holding.value)
        place = (holding.family, holding.step.key)
        last = self._places.get(place)
        again = last is not None and last[0] == holding.extent and version is not None and last[1] != version
        self._places[place] = holding.extent, version
        value = weakref.ref(holding.value)
        return Taking(value, holding.extent, version, looked, self.tick, _owner(holding), again)

    def of(self, holding: Holding) -> Taking | None:
        known = self._known.get(holding.slot)
        if known is None or known.value() is not holding.value or known.extent != holding.extent:
            return None
        if known.owner is not None and known.owner() is None:
            return None  # another container, at the address of one that is gone
        return known

    def clear(self) -> None:
        self._known.clear()
        self._entries.clear()
        self._places.clear()

    def older(self, holding: Holding, tick: int) -> bool:
        """Was the slot filled before this moment?"""
        taking = self.of(holding)
        return taking is not None and taking.tick < tick

    def changed_since(self, holding: Holding) -> bool:
        """Does the memory hold other values than when the slot took it?"""
        taking = self.of(holding)
        if taking is None:
            return False
        if taking.contents is not None:
            return taking.contents != contents(holding.value)
        now = version_of(holding.value)
        return taking.version is not None and now is not None and now != taking.version


def _owner(holding: Holding) -> weakref.ref[Any] | None:
    return next((step.witness for step in holding.step.up() if step.witness is not None), None)


def differed(one: Taking, other: Taking) -> bool:
    """Did the memory hold different values when the two slots took it?"""
    if one.tick == other.tick:
        return False
    if one.contents is not None and other.contents is not None:
        return one.contents != other.contents
    return one.version is not None and other.version is not None and one.version != other.version


def rewritten(one: Taking, other: Taking) -> bool:
    """Was the memory written between the moments at which the two slots took it?"""
    return one.tick != other.tick and None not in (one.version, other.version) and one.version != other.version


def by_extent(holdings: Iterable[Holding]) -> dict[Extent, list[Holding]]:
    groups: dict[Extent, list[Holding]] = {}
    for holding in holdings:
        groups.setdefault(holding.extent, []).append(holding)
    return groups
