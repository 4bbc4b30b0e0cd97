"""Graphs that outlive their step: seen by counting, proved by finding who holds them.

Every autograd node carries the `Site` of its line, so the reference count of a site is the number of live nodes that
the line has made, and costs nothing to keep. From step to step it stays the same, or goes up and down with the input.
Where it only ever goes up, the holders are looked for: a tensor whose graph reaches back through several earlier steps,
or a container whose entries were made in different ones. A container that is bounded, a graph that is let go later on
(a window, an episode, an inner loop) is no leak: what is suspected is told only if it was still growing at the end.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from torchsan import compat
from torchsan.model.events import Line, Memory
from torchsan.model.memory_events import GraphKept
from torchsan.observe import nodes
from torchsan.observe.holders.census import Holding, Step, take_census
from torchsan.observe.holders.storing import stored_at
from torchsan.observe.kept.saved import kept_by
from torchsan.observe.objects import is_tensor
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.sites import Site, _sites, user_frames
from torchsan.observe.timing import Share

# A line is suspected when its nodes have become more so many times, and never fewer in between.
RISES = 4
# When so small a share of the nodes is left, the graphs were let go: a window, an episode, an epoch's list.
LET_GO = 0.6
# Of how many earlier steps a holder must keep the graph, at least.
STEPS = 3
COLLECTING = ("item", "cache")
MAX_NODES = 20_000
MAX_TICKS = 4_096
LOOKING = (0.5, 0.02)


@dataclass(slots=True)
class _Course:
    """How the number of live nodes of one line has gone."""

    last: int
    rises: int = 0
    look_at: int = RISES


@dataclass(slots=True)
class Suspect:
    """A holder that was found, waiting for the end of the run."""

    event: GraphKept
    site: Site
    tick: int
    refuted: bool = False
    # The largest count since; none yet, since looking itself holds references.
    most: int | None = None
    later_rises: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        return self.event.held.place, self.event.holder.name


@dataclass(slots=True)
class _Group:
    """Tensors with a graph that one slot or one container holds, and the steps in which their graphs were made."""

    step: Step
    newest: Step
    slot: tuple[int, object]
    tensors: list[torch.Tensor] = field(default_factory=list)
    ticks: set[int] = field(default_factory=set)
    sequences: set[int] = field(default_factory=set)
    container: bool = False

    @property
    def name(self) -> str:
        above = self.step.above
        return above.path if self.container and above is not None else self.step.path


class GrowthSensor:
    """Counts at every `optimizer.step()`; at every backward in programs that have no optimizer."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.share = Share(*LOOKING)
        self.suspects: list[Suspect] = []
        self._courses: dict[int, _Course] = {}
        self._ticks: deque[int] = deque(maxlen=MAX_TICKS)
        self._number = 0
        self._stepped = False
        self._handle: Any = None
        # What a slot's value was made by when it was looked at, and the lines to look at again at the next tick.
        self._marks: dict[tuple[int, object], int] = {}
        self._again: list[Site] = []

    def install(self) -> None:
        self._handle = torch_optimizer.register_optimizer_step_post_hook(self._after_step)
        self.recorder.before_backward.append(self._before_backward)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        self._tell()

    # -- counting -----------------------------------------------------------------------------------

    @shield
    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self.recorder.active or self.recorder.paused:
            return
        if not self._stepped:
            # What was counted at backward passes had another rhythm: inner loops, accumulation.
            self._stepped = True
            self._courses.clear()
            self.suspects.clear()
        self._tick(sys._getframe(1))

    def _before_backward(self, roots: list[Any], frame: FrameType) -> None:
        # `autograd.grad` belongs to the inside of a step: penalties, inner loops.
        if not self._stepped and frame.f_code.co_name != "grad":
            self._tick(frame)

    def _tick(self, frame: FrameType) -> None:
        self._number += 1
        self._ticks.append(compat.thread_sequence())
        rising, self._again = self._again, []
        for site in list(_sites.values()):
            self._count(site, rising)
            for twin in site.twins.values():
                self._count(twin, rising)
        for suspect in self.suspects:
            self._follow(suspect)
        if rising and self.share.allows():
            with self.share.spending():
                self._look(rising, frame)

    def _count(self, site: Site, rising: list[Site]) -> None:
        count = sys.getrefcount(site)
        course = self._courses.get(id(site))
        if course is None:
            self._courses[id(site)] = _Course(count)
        elif count > course.last:
            course.last = count
            course.rises += 1
            if course.rises >= course.look_at:
                course.look_at *= 2
                rising.append(site)
        elif count < LET_GO * course.last:
            course.last, course.rises, course.look_at = count, 0, RISES

    def _follow(self, suspect: Suspect) -> None:
        count = sys.getrefcount(suspect.site)
        if suspect.most is None:
            suspect.most = count
        elif count < LET_GO * suspect.most:
            suspect.refuted = True
        elif count > suspect.most:
            suspect.later_rises += 1
            suspect.most = count

    # -- looking ------------------------------------------------------------------------------------

    def _look(self, rising: list[Site], frame: FrameType) -> None:
        wanted = {id(site) for site in rising}
        frames = user_frames(frame, 24)
        for group in _groups(take_census(frame).holdings):
            site = self._old_nodes(group, wanted)
            if site is None or len(self._ticks_of(group)) < STEPS:
                continue
            if any(suspect.site is site and not suspect.refuted for suspect in self.suspects):
                continue
            if group.container or self._carries_itself(group):
                self.suspects.append(Suspect(self._event(group, site, frames), site, self._number))
            else:
                self._again = rising

    def _ticks_of(self, group: _Group) -> set[int]:
        """In which steps a container's entries were made; into which steps a running value reaches back."""
        if not group.container:
            return group.ticks
        return {bisect_right(self._ticks, compat.node_sequence(tensor.grad_fn)) for tensor in group.tensors}

    def _carries_itself(self, group: _Group) -> bool:
        """Was the value of this slot a tick ago made part of its value now? A mere result of the step was not."""
        slot, node = group.slot, group.tensors[-1].grad_fn
        before = self._marks.get(slot)
        self._marks[slot] = compat.node_sequence(node)
        return before is not None and before != self._marks[slot] and before in group.sequences

    def _old_nodes(self, group: _Group, wanted: set[int]) -> Site | None:
        """Does the group keep nodes of a rising line from several earlier steps? The line, if so."""
        found: Site | None = None
        seen = 0
        # The newest graph is the current step's own; only what came before the last tick is old.
        latest = self._ticks[-2] if len(self._ticks) > 1 else 0
        for node in nodes.walk([tensor.grad_fn for tensor in group.tensors]):
            seen += 1
            if seen > MAX_NODES:
                break
            sequence = compat.node_sequence(node)
            group.sequences.add(sequence)
            # Leaves are numbered beyond all others.
            if not 0 <= sequence < latest:
                continue
            site = nodes.site_of_node(node)
            if site is not None and id(site) in wanted:
                found = found or site
                group.ticks.add(bisect_right(self._ticks, sequence))
        return found

    def _event(self, group: _Group, site: Site, frames: list[FrameType]) -> GraphKept:
        newest = group.tensors[-1]
        made = Line(site.place, site.library_place)
        if group.container:
            # Put into the container, or into the attribute of an entry that was there before.
            held = stored_at(group.step, frames, bound=False)
            if held is None and group.newest.kind == "attribute":
                held = stored_at(group.newest, frames)
        else:
            # A running value is made by the line that carries it on.
            held = nodes.line_of_node(newest.grad_fn) or stored_at(group.step, frames)
        held = held or made
        contents = kept_by([tensor.grad_fn for tensor in group.tensors])
        steps = max(1, len(group.ticks))
        size = sum(one.storage_bytes for one in contents.kept if not one.leaf)
        return GraphKept(
            holder=Memory(group.name),
            held=held,
            made=made,
            container=group.container,
            entries=len(group.tensors),
            steps=steps,
            nodes_per_step=contents.nodes / steps,
            bytes_per_step=size / steps,
            used=all(_released(tensor) for tensor in group.tensors[:-1] or group.tensors),
        )

    # -- telling ------------------------------------------------------------------------------------

    @shield
    def _tell(self) -> None:
        # Who has let go once will do so again.
        told = {suspect.key for suspect in self.suspects if suspect.refuted}
        for suspect in self.suspects:
            late = self._number - suspect.tick
            if late >= 2 * RISES and suspect.later_rises == 0:
                continue
            key = suspect.key
            if key not in told:
                told.add(key)
                self.recorder.emit(suspect.event)
                if self.recorder.report.memory is not None:
                    self.recorder.report.memory.growth.append(suspect.event.row())


def _released(tensor: torch.Tensor) -> bool:
    """Has a backward gone through this tensor's graph already?"""
    for index, node in enumerate(nodes.walk([tensor.grad_fn])):
        if nodes.is_released(node):
            return True
        if index > 64:
            break
    return False


def _groups(holdings: list[Holding]) -> list[_Group]:
    """Tensors with a graph, by the container that collects them or else by their slot."""
    carriers = [h for h in holdings if is_tensor(h.value) and h.value.grad_fn is not None]
    entries: dict[int, set[object]] = {}
    for holding in carriers:
        for one in holding.step.up():
            if one.kind in COLLECTING:
                entries.setdefault(one.owner, set()).add(one.key)
    found: dict[object, _Group] = {}
    for holding in carriers:
        collector = _collector(holding.step, entries)
        key = ("container", collector.owner) if collector is not None else holding.slot
        step = collector or holding.step
        group = found.setdefault(key, _Group(step, holding.step, holding.slot, container=collector is not None))
        group.tensors.append(holding.value)
        group.newest = holding.step
    return list(found.values())


def _collector(step: Step, entries: dict[int, set[object]]) -> Step | None:
    """The outermost container with several entries: `self.episodes[3].loss` is collected by `self.episodes`."""
    ways = [one for one in step.up() if one.kind in COLLECTING and len(entries[one.owner]) >= STEPS]
    return ways[-1] if ways else None
