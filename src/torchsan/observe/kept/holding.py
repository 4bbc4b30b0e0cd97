"""The holder that grows, found by looking twice.

At the first look the holders of graphs from several earlier steps are written down by their address; at the second, a
step later, the one that still has those graphs and has a newer one as well is the holder: a container that took in
another entry, or a slot that was bound anew to something that leads to old and new (`self.newest = Record(loss,
self.newest)`). Of several, the innermost: a trainer leads to all of it, but it is its list that grows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any

from torchsan.observe.holders.slots import Step
from torchsan.observe.kept.carriers import Carrier, Carriers, Origin
from torchsan.observe.kept.contents import content, deep_content, is_container
from torchsan.observe.kept.upward import Name, Upward
from torchsan.observe.objects import attributes_of

# Of how many steps a holder must have the graphs, at least; and how many are asked for.
STEPS, SAMPLES, GROUPS, BEGINNING = 3, 5, 6, 40


@dataclass(slots=True)
class Grower:
    """What was found: the way to it, and the thing itself for as long as the look lasts."""

    step: Step
    container: bool
    held: list[Carrier]
    holder: Any
    look: Callable[[Any], list[int]]
    # A variable of a function that runs: its frame's address and its name.
    variable: tuple[int, str] | None = None


@dataclass(slots=True)
class Marks:
    """The first look: by address, so that nothing is kept alive."""

    # The carriers of each line, by the numbers that torch gave to their nodes.
    samples: dict[Origin, list[int]] = field(default_factory=dict)
    holders: dict[int, type] = field(default_factory=dict)
    # What variables were bound to, by their owner and name.
    names: dict[tuple[int, str], int] = field(default_factory=dict)


@dataclass(slots=True)
class Group:
    """Carriers that one line has made: those of earlier steps, and those that came after the last look."""

    line: Origin
    old: list[Carrier]
    new: list[Carrier] = field(default_factory=list)


def choose(carriers: list[Carrier], before: int, marks: Marks | None) -> list[Group]:
    """Carriers of several earlier steps, by the line that made them: the latest ones of each, or those looked at."""
    lines: dict[Origin, list[Carrier]] = {}
    for one in carriers:
        lines.setdefault(one.origin, []).append(one)
    if marks is not None:
        return [_again(line, ones, marks.samples[line]) for line, ones in lines.items() if line in marks.samples]
    groups = []
    for line, ones in lines.items():
        ticks: dict[int, list[Carrier]] = {}
        for one in ones:
            if one.sequence < before:
                ticks.setdefault(one.tick, []).append(one)
        if len(ticks) >= STEPS:
            old = [one for tick in sorted(ticks)[-SAMPLES:] for one in ticks[tick][-2:]]
            groups.append((len(ticks), Group(line, old)))
    groups.sort(key=lambda pair: -pair[0])
    return [group for _, group in groups[:BEGINNING]]


def _again(line: Origin, ones: list[Carrier], samples: list[int]) -> Group:
    old = [one for one in ones if one.sequence in samples]
    latest = max(samples)
    return Group(line, old, [one for one in ones if one.sequence > latest][-2 * SAMPLES :])


def look(groups: list[Group], carriers: Carriers, before: Marks | None) -> tuple[Marks, list[Grower]]:
    """Who holds these groups; compared with what was written down at the look before, if there was one."""
    marks = Marks({group.line: [one.sequence for one in group.old] for group in groups})
    starts = [one.value for group in groups for one in (*group.old, *group.new)]
    if not starts:
        return marks, []
    up = Upward(starts, carriers.leaves)
    if not all(_Holders(up, group).are_named() for group in groups):
        del up
        up = Upward(starts, carriers.leaves, arrays=True)
    growers: dict[tuple[int, object], Grower] = {}
    for group in groups:
        holders = _Holders(up, group)
        for number in holders.having_old:
            marks.holders[number] = type(up.objects[number])
            for name in up.names.get(number, ()):
                marks.names[name.owner, name.text] = number
        if before is not None:
            for grower in holders.growing(before):
                growers.setdefault((grower.step.owner, grower.step.key), grower)
    return marks, list(growers.values())


class _Holders:
    """Everything that leads to the carriers of one group, and to those of which steps."""

    def __init__(self, up: Upward, group: Group) -> None:
        self.up = up
        self.group = group
        self.old = self._ticks(group.old)
        self.new = self._ticks(group.new).keys()
        self.having_old = {number for number, ticks in self.old.items() if len(ticks) >= STEPS}

    def _ticks(self, carriers: list[Carrier]) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for one in carriers:
            for number in self.up.reach(id(one.value)):
                found.setdefault(number, set()).add(one.tick)
        return found

    def are_named(self) -> bool:
        return any(self.up.way(number) is not None for number in self.having_old)

    def growing(self, before: Marks) -> list[Grower]:
        known = {number for number in self.having_old & self.new if self._was_there(number, before)}
        collecting = {number for number in known if self._collects(number)}
        rebound = {number: one for number in known if (one := self._is_bound_anew(number, before)) is not None}
        grown = collecting | rebound.keys()
        inner = {number: self._below(number) & grown for number in grown}
        innermost = [n for n in grown if not any(self._goes_before(other, n, inner) for other in inner[n])]
        found = [self._grower(number, rebound.get(number)) for number in innermost]
        return [one for one in found if one is not None] or self._variables(before)

    def _was_there(self, number: int, before: Marks) -> bool:
        kind = type(self.up.objects[number])
        # Exceptions and what they remember are held by others.
        return before.holders.get(number) is kind and not issubclass(kind, (FrameType, TracebackType, BaseException))

    def _goes_before(self, one: int, number: int, inner: dict[int, set[int]]) -> bool:
        """Is one of two holders the inner one? Where each leads to the other, as a traceback leads to the object whose
        list has it, the one that is a container."""
        if number not in inner[one]:
            return True
        return (is_container(self.up.objects[one]), number) > (is_container(self.up.objects[number]), one)

    def _collects(self, number: int) -> bool:
        """Do several entries lead to old graphs, each to few of them, and one to a new one?"""
        below = self.up.holds.get(number, set())
        old = [one for one in below if one in self.old]
        return len(old) >= STEPS and any(one in self.new for one in below)

    def _is_bound_anew(self, number: int, before: Marks) -> int | None:
        for one in self.up.holds.get(number, ()):
            if one in self.having_old and one in self.new and one not in before.holders:
                return one
        return None

    def _below(self, number: int) -> set[int]:
        """Other holders of old and new graphs that this one leads to."""
        found: set[int] = set()
        todo = list(self.up.holds.get(number, ()))
        while todo:
            one = todo.pop()
            if one in self.having_old and one not in found and one != number:
                found.add(one)
                todo.extend(self.up.holds.get(one, ()))
        return found

    def _grower(self, number: int, below: int | None) -> Grower | None:
        holder, way, carriers = self.up.objects[number], self.up.way(number), self.group.old
        if way is None:
            # A list that is still being built (`[step() for _ in data]`, `list(steps())`) has no name yet; it lives,
            # since it has taken in another graph.
            unnamed = below is None and is_container(holder)
            return Grower(Step(None, "", "item", number, 0), True, carriers, holder, deep_content) if unnamed else None
        if below is None:
            return Grower(Step(way, "[…]", "item", number, 0, way.depth + 1), True, carriers, holder, deep_content)
        part, kind, key = self.up.part(number, below)
        if not part:
            return Grower(way, False, carriers, holder, content)

        def bound(owner: Any) -> list[int]:
            return [id(attributes_of(owner).get(key))] if type(key) is str else deep_content(owner)

        return Grower(Step(way, part, kind, number, key, way.depth + 1), False, carriers, holder, bound)

    def _variables(self, before: Marks) -> list[Grower]:
        """A variable that was bound to something else, which leads to the old graphs as well."""
        for number in self.having_old & self.new:
            for name in self.up.names.get(number, ()):
                known = before.names.get((name.owner, name.text))
                if known is not None and known != number and name.users:
                    return [_variable(name, self.group.old)]
        return []


def _variable(name: Name, carriers: list[Carrier]) -> Grower:
    step = Step(None, name.text, name.kind, name.owner, name.text, 0, name.frame)
    if name.namespace is None:
        return Grower(step, False, carriers, None, content, (name.owner, name.text))

    def bound(namespace: Any) -> list[int]:
        return [id(namespace.get(name.text))]

    return Grower(step, False, carriers, name.namespace, bound)
