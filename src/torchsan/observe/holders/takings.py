"""When each slot took the memory it holds, and what the memory held then."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torchsan.observe.holders.census import Census, Holding
from torchsan.observe.holders.extents import Extent, contents, version_of

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


class Takings:
    """Slots are known by the identity of their owner and their key, while owner and object are the same."""

    def __init__(self) -> None:
        self.tick = 0
        self._known: dict[tuple[int, object], Taking] = {}

    def note(self, census: Census) -> None:
        """Remember what is new in this census."""
        self.tick += 1
        for holding in census.holdings:
            if self.of(holding) is None:
                self._known[holding.slot] = self._taken(holding)
        if len(self._known) > MAX_SLOTS:
            self._known = {slot: t for slot, t in self._known.items() if t.value() is not None}

    def _taken(self, holding: Holding) -> Taking:
        # Parameters of modules are many and large; of them the version is enough.
        looked = contents(holding.value) if holding.step.kind != "attribute" else None
        owner = next((step.witness for step in holding.step.up() if step.witness is not None), None)
        return Taking(weakref.ref(holding.value), holding.extent, version_of(holding.value), looked, self.tick, owner)

    def of(self, holding: Holding) -> Taking | None:
        known = self._known.get(holding.slot)
        if known is None or known.value() is not holding.value or known.extent != holding.extent:
            return None
        if known.owner is not None and known.owner() is None:
            return None  # another container, at the address of one that is gone
        return known

    def clear(self) -> None:
        self._known.clear()

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


def differed(one: Taking, other: Taking) -> bool:
    """Did the memory hold different values when the two slots took it?"""
    if one.tick == other.tick:
        return False
    if one.contents is not None and other.contents is not None:
        return one.contents != other.contents
    return one.version is not None and other.version is not None and one.version != other.version


def by_extent(holdings: Iterable[Holding]) -> dict[Extent, list[Holding]]:
    groups: dict[Extent, list[Holding]] = {}
    for holding in holdings:
        groups.setdefault(holding.extent, []).append(holding)
    return groups
