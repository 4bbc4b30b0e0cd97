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
from torchsan.model.events import GraphKept, Line, Memory
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
# Of how many earlier steps a holder must keep the graph, at least.
STEPS = 3
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
    count: int
    ticks: int
    refuted: bool = False
    last: int = 0
    later_rises: int = 0


@dataclass(slots=True)
class _Group:
    """Tensors with a graph that one slot or one container holds, and the steps in which their graphs were made."""

    step: Step
    tensors: list[torch.Tensor] = field(default_factory=list)
    ticks: set[int] = field(default_factory=set)
    container: bool = False


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
        if not self._stepped:
            self._tick(frame)

    def _tick(self, frame: FrameType) -> None:
        self._number += 1
        self._ticks.append(compat.next_sequence())
        rising: list[Site] = []
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
        elif count < course.last:
            course.last, course.rises, course.look_at = count, 0, RISES

    def _follow(self, suspect: Suspect) -> None:
        count = sys.getrefcount(suspect.site)
        if count < suspect.last:
            suspect.refuted = True
        elif count > suspect.last:
            suspect.later_rises += 1
        suspect.last = count

    # -- looking ------------------------------------------------------------------------------------

    def _look(self, rising: list[Site], frame: FrameType) -> None:
        wanted = {id(site) for site in rising}
        frames = user_frames(frame, 24)
        groups = _groups(take_census(frame).holdings)
        for group in groups:
            found = self._old_nodes(group, wanted)
            if found is None or len(group.ticks) < STEPS:
                continue
            site = found
            if any(s.site is site and not s.refuted for s in self.suspects):
                continue
            event = self._event(group, site, frames)
            if event is not None:
                count = sys.getrefcount(site)
                self.suspects.append(Suspect(event, site, count, self._number, last=count))

    def _old_nodes(self, group: _Group, wanted: set[int]) -> Site | None:
        """Does the group keep nodes of a rising line from several earlier steps? The line, if so."""
        found: Site | None = None
        roots = [tensor.grad_fn for tensor in group.tensors]
        seen = 0
        # The newest graph is the current step's own; only what came before the last tick is old.
        latest = self._ticks[-2] if len(self._ticks) > 1 else 0
        for node in nodes.walk(roots):
            seen += 1
            if seen > MAX_NODES:
                break
            sequence = nodes.sequence(node)
            if sequence < 0 or sequence >= latest or sequence > (1 << 60):
                continue
            site = nodes.site_of_node(node)
            if site is not None and id(site) in wanted:
                found = found or site
                group.ticks.add(bisect_right(self._ticks, sequence))
        return found

    def _event(self, group: _Group, site: Site, frames: list[FrameType]) -> GraphKept | None:
        newest = group.tensors[-1]
        made = Line(site.place, site.library_place)
        held = stored_at(group.step, frames)
        if not group.container:
            # A running value is made by the line that carries it on.
            held = held or nodes.line_of_node(newest.grad_fn)
        if held is None:
            return None
        kept, count = kept_by([tensor.grad_fn for tensor in group.tensors])
        steps = max(1, len(group.ticks))
        size = sum(one.storage_bytes for one in kept if not one.leaf)
        return GraphKept(
            holder=Memory(group.step.path),
            held=held,
            made=made,
            container=group.container,
            entries=len(group.tensors),
            steps=steps,
            nodes_per_step=count / steps,
            bytes_per_step=size / steps,
            used=all(_released(tensor) for tensor in group.tensors[:-1] or group.tensors),
        )

    # -- telling ------------------------------------------------------------------------------------

    @shield
    def _tell(self) -> None:
        told: set[tuple[object, ...]] = set()
        for suspect in self.suspects:
            late = self._number - suspect.ticks
            if suspect.refuted or (late >= 2 * RISES and suspect.later_rises == 0):
                continue
            key = (suspect.event.held.place, suspect.event.holder.name)
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
    found: dict[object, _Group] = {}
    for holding in holdings:
        value = holding.value
        if not is_tensor(value) or value.grad_fn is None:
            continue
        collector = _collector(holding.step)
        key = ("container", collector.owner) if collector is not None else holding.slot
        group = found.setdefault(key, _Group(collector or holding.step, container=collector is not None))
        group.tensors.append(value)
    return list(found.values())


def _collector(step: Step) -> Step | None:
    """The outermost container on the way: `self.episodes[3].losses[2]` is collected by `self.episodes`."""
    return next((one for one in reversed(list(step.up())) if one.kind == "item"), None)
