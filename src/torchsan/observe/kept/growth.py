"""Graphs that outlive their step: seen by counting, proved by finding who holds them.

Every autograd node carries the mark of its line's `Site`, so the reference count of a mark is the number of live nodes
that the line has made, and costs nothing to keep. From step to step it stays the same, or goes up and down with the
input. Where it only ever goes up, the holders are looked for: a tensor whose graph reaches back through several earlier
steps, or whoever keeps tensors that were made in different ones. What is bounded, a graph that is let go later on (a
window, an episode, an inner loop) is no leak: what is suspected is told only if it was still growing at the end.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from torchsan import compat
from torchsan.model.events import Line, Memory
from torchsan.model.memory_events import GraphKept
from torchsan.observe import nodes
from torchsan.observe.holders.slots import Step
from torchsan.observe.holders.storing import stored_at
from torchsan.observe.kept import carriers, holding
from torchsan.observe.kept.carriers import Carrier, Carriers, LineKey, Origin, Reach, Walker, line_of
from torchsan.observe.kept.catching import Catcher
from torchsan.observe.kept.courses import Course, Suspect
from torchsan.observe.kept.holding import STEPS, Group, Grower, Marks
from torchsan.observe.kept.saved import kept_by
from torchsan.observe.kept.upward import Upward
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.sites import Site, user_frames
from torchsan.observe.steps import OptimizerStep
from torchsan.observe.timing import Share

MAX_TICKS = 4_096
# Lines whose newest carriers are asked how far back they reach.
RUNNING, FATES = 24, 3
# Steps for which the line that puts a graph into its holder is waited for, if it does so at every one; and at most.
CATCHING, LONGEST_CATCH = 4, 256
# How many lines' looks may wait for their second one, and how often it may find nothing.
WAITING, TRIES = 8, 3
LOOKING = Share(1.5, 0.02)  # of the process: a block that is watched again and again begins with what is left
# To count takes the longer the more lines the run has met; the first steps are all counted.
COUNTING = Share(0.02, 0.01, hoard=0.02)
ALL_COUNTED = 64
# How often it is measured what a count takes: to measure takes as long as to count the lines of a small program.
MEASURED = 16


@dataclass(slots=True)
class _Carried:
    """A running value, how far back its graph goes, and who holds it."""

    carrier: Carrier
    reach: Reach
    way: Step


@dataclass(slots=True)
class _First:
    """A first look: at which lines, and what it has written down."""

    sites: list[tuple[Site, Course]]
    tick: int
    marks: Marks
    running: dict[Origin, set[int]]
    tries: int = 0

    def risen(self, tick: int) -> list[Site]:
        return [site for site, course in self.sites if tick > self.tick and course.risen_at == tick]


class GrowthSensor:
    """Counts at every `optimizer.step()`; at every backward in programs that have no optimizer."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.share = LOOKING
        self.suspects: list[Suspect] = []
        self._courses: dict[int, Course] = {}
        self._ticks: deque[int] = deque(maxlen=MAX_TICKS)
        self._number = 0
        self._stepped = False
        # Looks that wait for the tick at which their lines have more nodes again.
        self._waiting: list[_First] = []
        self._spare: dict[int, int] = {}
        # References to the marks of all lines at the last count; in most programs they are the same at every step.
        self._references: list[int] = []
        self._cost = 0.0

    def install(self) -> None:
        self.recorder.steps.after.append(self._after_step)
        self.recorder.before_backward.append(self._before_backward)

    def close(self) -> None:
        self._stop_catching(sys._getframe(1), ended=True)
        self._tell()

    # -- counting -----------------------------------------------------------------------------------

    @shield
    def _after_step(self, step: OptimizerStep) -> None:
        if not self.recorder.active or self.recorder.paused:
            return
        if not self._stepped:
            # What was counted at backward passes had another rhythm: inner loops, accumulation.
            self._stepped = True
            self._courses.clear()
            self.suspects.clear()
            self._references = []
        self._tick(step.frame)

    def _before_backward(self, roots: list[Any], frame: FrameType) -> None:
        # `autograd.grad` belongs to the inside of a step: penalties, inner loops.
        if not self._stepped and frame.f_code.co_name != "grad":
            self._tick(frame)

    def _tick(self, frame: FrameType) -> None:
        if self._number >= ALL_COUNTED and not COUNTING.allows():
            return
        self._number += 1
        if self.suspects:
            self._stop_catching(frame)
        self._ticks.append(compat.thread_sequence())
        rising: list[Site] = []
        if self._number % MEASURED == 1:
            before = COUNTING.spent
            with COUNTING.spending():
                again = self._count_all(rising)
            self._cost = COUNTING.spent - before
        else:
            again = self._count_all(rising)
            COUNTING.spent += self._cost
        if (rising or again) and self.share.allows():
            with self.share.spending():
                self._look(rising, again, frame)
        self._start_catching(frame)

    def _count_all(self, rising: list[Site]) -> list[_First]:
        """Count the nodes of every line that this run has met; gives the looks whose lines have got more."""
        sites, spare, live = list(self.recorder.met), self.recorder.spare_marks(), self.recorder.live_nodes
        references = [sys.getrefcount(site.mark) for site in sites]
        if live and references == self._references and spare == self._spare and not self.suspects:
            live.append(live[-1])
            return []
        self._references, self._spare = references, spare
        live.append(sum([self._count(site, rising) for site in sites]))
        for suspect in self.suspects:
            self._follow(suspect)
        return self._due()

    def _count(self, site: Site, rising: list[Site]) -> int:
        count = self._alive(site)
        course = self._courses.get(id(site))
        if course is None or course.falls(count):
            self._courses[id(site)] = Course(count, self._number)
        elif course.rises_to(count, self._number):
            rising.append(site)
        return count

    def _due(self) -> list[_First]:
        """Looks whose lines have got more nodes since: at this tick their holder has taken in another."""
        for first in self._waiting:
            first.sites = [(site, course) for site, course in first.sites if self._courses.get(id(site)) is course]
        self._waiting = [first for first in self._waiting if first.sites and first.tries < TRIES][-WAITING:]
        return [first for first in self._waiting if first.risen(self._number)]

    def _alive(self, site: Site) -> int:
        """How many nodes carry the mark of a site; besides them, the site, the name and the call refer to it."""
        mark = site.mark
        return sys.getrefcount(mark) - 3 - self._spare.get(id(mark), 0)

    def _follow(self, suspect: Suspect) -> None:
        suspect.counted(sum(self._alive(site) for site in list(self.recorder.met) if line_of(site) == suspect.line))

    # -- looking ------------------------------------------------------------------------------------

    def _look(self, rising: list[Site], again: list[_First], frame: FrameType) -> None:
        """Twice: what is written down the first time is compared with the second, when the line has more nodes again.

        That is the next step, or the next that is logged, or the other optimizer's, or after the next epoch.
        """
        found = carriers.find(self._ticks)
        frames = user_frames(frame, 24)
        for first in again:
            self._second(first, found, frames)
        if rising:
            walker = Walker(self._ticks, {id(site) for site in rising})
            marks, _ = holding.look(self._groups(found.found, None, walker), found, None)
            running, _ = self._carried(found, walker, {})
            sites = [(site, self._courses[id(site)]) for site in rising]
            self._waiting.append(_First(sites, self._number, marks, running))

    def _second(self, first: _First, found: Carriers, frames: list[FrameType]) -> None:
        risen = first.risen(self._number)
        walker = Walker(self._ticks, {id(site) for site in risen})
        _, growers = holding.look(self._groups(found.found, first.marks, walker), found, first.marks)
        for grower in growers:
            self._suspect(self._collected(grower, frames), grower.held[-1], grower)
        _, carried = self._carried(found, walker, first.running)
        for one in carried:
            self._suspect(self._running_value(one), one.carrier, None)
        first.tries += 1
        if growers or carried:
            first.sites = [(site, course) for site, course in first.sites if site not in risen]

    def _groups(self, found: list[Carrier], marks: Marks | None, walker: Walker) -> list[Group]:
        """Carriers of several steps whose graphs have nodes of a rising line."""
        # The newest graphs are the current step's own; only what came before the last tick is old.
        latest = self._ticks[-2] if len(self._ticks) > 1 else 0
        groups = [group for group in holding.choose(found, latest, marks) if group.old]
        return [group for group in groups if walker.reach(group.old[-1].node).site is not None][: holding.GROUPS]

    def _carried(
        self, found: Carriers, walker: Walker, before: dict[Origin, set[int]]
    ) -> tuple[dict[Origin, set[int]], list[_Carried]]:
        """Values whose graph goes back through several steps and has in it what the same line made a tick ago.

        A mere result of the step, computed from such a value, is not made from its own value before.
        """
        running: dict[Origin, set[int]] = {}
        recent = self._ticks[-3] if len(self._ticks) > 2 else 0
        lines: dict[Origin, list[Carrier]] = {}
        for one in sorted(found.found, key=lambda one: -one.sequence):
            if one.sequence >= recent and one.site is not None:
                lines.setdefault(one.origin, []).append(one)
        carried = []
        for number, ones in list(lines.items())[:RUNNING]:
            # One line makes values of several fates: of a state for training, which is cut, and of one for validation.
            newest = {one.sequence: one for one in reversed(ones)}
            far = ((one, walker.reach(one.node)) for one in list(reversed(newest.values()))[:FATES])
            chain = next(((one, r) for one, r in far if r.site is not None and len(r.ticks) >= STEPS), None)
            if chain is None:
                continue
            running[number] = {one.sequence for one in ones}
            latest, reach = chain
            if reach.sequences & (before.get(number, set()) - {latest.sequence}):
                carried.append(([one for one in ones if one.sequence <= latest.sequence][:4], reach))
        return running, _own_chains(_named(carried, found), walker, before)

    def _suspect(self, event: GraphKept, carrier: Carrier, grower: Grower | None) -> None:
        if any(_line(suspect.event) == _line(event) and not suspect.refuted for suspect in self.suspects):
            return
        suspect = Suspect(event, carrier.line, self._number, rate=self._rate(carrier.line))
        self.suspects.append(suspect)
        if grower is not None and (grower.holder is not None or grower.variable is not None):
            suspect.catcher = Catcher(grower.holder, grower.look, grower.variable)

    def _rate(self, line: LineKey) -> float:
        courses = [self._courses.get(id(site)) for site in list(self.recorder.met) if line_of(site) == line]
        return max((one.rate(self._number) for one in courses if one is not None), default=0.0)

    def _start_catching(self, frame: FrameType) -> None:
        """At the very end of a tick, one at a time: the interpreter has one ear."""
        for suspect in self.suspects:
            catcher = suspect.catcher
            if catcher is None:
                continue
            if catcher.started or catcher.start(frame):
                return
            suspect.catcher = None
            # Nobody will see who puts it there, and the source may name another line: only what is known is told.
            suspect.event = replace(suspect.event, held=suspect.event.made or suspect.event.held)

    def _stop_catching(self, frame: FrameType, *, ended: bool = False) -> None:
        for suspect in self.suspects:
            if suspect.catcher is None:
                continue
            place = suspect.catcher.caught()
            patience = min(LONGEST_CATCH, CATCHING / max(suspect.rate, 1 / LONGEST_CATCH))
            waiting = self._number - suspect.tick < patience * (1 + self.suspects.index(suspect))
            if place is None and not ended and waiting:
                continue
            suspect.catcher.stop(frame)
            suspect.catcher = None
            if place is not None:
                suspect.event = replace(suspect.event, held=Line(place))

    def _collected(self, grower: Grower, frames: list[FrameType]) -> GraphKept:
        newest = max(grower.held, key=lambda one: one.sequence)
        made = nodes.line_of_node(newest.node)
        held = stored_at(grower.step, frames, bound=not grower.container) or made
        above = grower.step.above
        name = above.path if grower.container and above is not None else grower.step.path
        steps = len({one.tick for one in grower.held})
        return _event(name, held, made, grower.held, steps=steps, container=grower.container)

    def _running_value(self, one: _Carried) -> GraphKept:
        """It is made by the line that carries it on."""
        site = one.reach.site
        made = Line(site.place, site.library_place) if site is not None else None
        held = nodes.line_of_node(one.carrier.node)
        return _event(one.way.path, held, made, [one.carrier], steps=len(one.reach.ticks))

    # -- telling ------------------------------------------------------------------------------------

    @shield
    def _tell(self) -> None:
        # Who has let go once will do so again.
        told = {suspect.key for suspect in self.suspects if suspect.refuted}
        lines = set()
        for suspect in sorted(self.suspects, key=lambda one: -one.event.bytes_per_step):
            if not suspect.goes_on(self._number):
                continue
            key = suspect.key
            if key not in told:
                told.add(key)
                # A statement that fills several lists in turn is one mistake.
                if suspect.event.held.place not in lines:
                    lines.add(suspect.event.held.place)
                    self.recorder.emit(suspect.event)
                if self.recorder.report.memory is not None:
                    self.recorder.report.memory.growth.append(suspect.event.row())


def _named(carried: list[tuple[list[Carrier], Reach]], found: Carriers) -> list[_Carried]:
    """Of the values that a line made, the one that the program holds; others are only saved by the graph."""
    values = [one.value for ones, _ in carried for one in ones]
    if not values:
        return []
    up = Upward(values, found.leaves)
    named = []
    for ones, reach in carried:
        ways = ((one, up.way(id(one.value))) for one in ones)
        named += [_Carried(one, reach, way) for one, way in ways if way is not None][:1]
    if not named:
        # `sum(step() for _ in data)` has its total where no name leads; it is made of itself all the same.
        named = [_Carried(ones[0], reach, Step(None, "", "local", 0, "")) for ones, reach in carried[:1]]
    return named


def _own_chains(carried: list[_Carried], walker: Walker, before: dict[Origin, set[int]]) -> list[_Carried]:
    """Without those that are made from their former selves only by way of another that is told, the newer of two."""
    kept = carried
    for one in reversed(carried):
        others = {other.carrier.origin for other in kept if other is not one}
        former = before.get(one.carrier.origin, set()) - {one.carrier.sequence}
        if others and not walker.comes_back(one.carrier.node, former, others):
            kept = [other for other in kept if other is not one]
    return kept


def _event(
    name: str, held: Line | None, made: Line | None, ones: list[Carrier], *, steps: int, container: bool = False
) -> GraphKept:
    contents = kept_by([one.node for one in ones])
    held = held or made
    assert held is not None
    steps = max(1, steps)
    size = sum(one.storage_bytes for one in contents.kept if not one.leaf)
    return GraphKept(
        holder=Memory(name),
        held=held,
        made=made or held,
        container=container,
        entries=len(ones),
        steps=steps,
        nodes_per_step=contents.nodes / steps,
        bytes_per_step=size / steps,
        used=all(_released(one.node) for one in ones[:-1] or ones),
    )


def _line(event: GraphKept) -> tuple[str, int]:
    return event.held.place.path, event.held.place.line


def _released(root: Any) -> bool:
    """Has a backward gone through this graph already?"""
    for index, node in enumerate(nodes.walk([root])):
        if nodes.is_released(node):
            return True
        if index > 64:
            break
    return False
