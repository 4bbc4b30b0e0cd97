"""Keeps the story of each memory for the HTML page: what was saved, what was written, which backward needed it.

Only made when a page was asked for, since it reads every saved value before each backward. What torch no longer
hands over, a saved value that was overwritten, is told by the event that the rules judge.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from torchsan.model import Finding, Kind, Lane, Moment, Place, Timeline
from torchsan.model.events import Event, StaleSave, Write
from torchsan.model.parallel_events import ParallelEvent
from torchsan.observe import expressions as syntax
from torchsan.observe import nodes
from torchsan.observe.clock import clock
from torchsan.observe.ledger import Written
from torchsan.observe.names import modules, variables
from torchsan.observe.objects import is_tensor, tensors_of
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.sites import Site, site_of, user_frames
from torchsan.observe.tensors import memory_of

MAX_MOMENTS = 100_000
UNKNOWN = -1

# When something happened: after how many backwards began, at which node's number, and what comes first at one node.
When = tuple[int, int, int]
WRITE, MADE, SAVE, BACKWARD = range(4)


@dataclass(slots=True)
class _Happened:
    when: When
    kind: Kind
    version: int
    label: str
    place: Place | None
    finding: int | None = None


@dataclass(slots=True)
class _Story:
    """A lane while it is being recorded.

    Values that a loop makes anew have new memory each time. They take turns on one lane: the first of a name in
    one backward goes on the lane of the first in the last one.
    """

    lane: Lane
    lasting: bool
    memory: int | None = None
    backward: int = -1
    since: int = 0
    happened: list[_Happened] = field(default_factory=list)
    known: set[object] = field(default_factory=set)


class TimelineSensor:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._stories: dict[tuple[str, str], list[_Story]] = {}
        self._by_memory: dict[int, _Story] = {}
        # The number that the next node would have had when each backward began.
        self._backwards: list[int] = []
        self._names: dict[tuple[Site, str], str] = {}
        # Saves that torch no longer hands over, by line and name: the numbers of their nodes.
        self._stale: dict[tuple[Place, str], int] = {}
        self._kept = 0
        self._dropped = 0

    def install(self) -> None:
        self.recorder.before_backward.append(self._before_backward)
        self.recorder.heard.append(self._heard)

    def close(self) -> None:
        self._gather_writes()
        self._gather_steps()
        self.recorder.report.timeline = self._timeline()

    # -- what the graph holds -----------------------------------------------------------------------

    @shield
    def _before_backward(self, roots: list[Any], frame: FrameType) -> None:
        now, needed = clock.now(), site_of(frame).place
        owned = _owned(user_frames(frame))
        saves = [saved for node in nodes.walk(roots) for saved in nodes.saved_values(node)]
        # A node that made a value names it best, so results come first.
        for saved in sorted(saves, key=lambda s: s.what != "result"):
            if saved.tensor is not None:
                self._saved(saved, owned, (len(self._backwards), now, BACKWARD), needed)
            elif (site := nodes.site_of_node(saved.node)) is not None:
                self._stale[site.place, saved.what] = nodes.sequence(saved.node)
        self._gather_writes()
        self._backwards.append(now)

    def _saved(self, saved: nodes.Saved, owned: dict[int, tuple[str, bool]], now: When, needed: Place) -> None:
        memory, number, site = memory_of(saved.tensor), nodes.sequence(saved.node), nodes.site_of_node(saved.node)
        if memory is None or saved.tensor is None or not 0 <= int(number) < nodes.LAST:
            return
        story = self._story(memory, saved, site, owned.get(memory))
        story.since = min(story.since, number)
        op, version = nodes.op_name(saved.node), saved.tensor._version
        place = site.place if site is not None else None
        at = self._epoch_of(number)
        if saved.what == "result" and version == 0:  # else an in-place op wrote what was there already
            self._add(story, (at, number, MADE), "made", version, f"{op} makes it", place)
        self._add(story, (at, number, SAVE), "saved", version, _save_words(op, saved.what), place)
        self._add(story, now, "needed", version, f"needed for the gradient of {op}", needed)

    def _story(self, memory: int, saved: nodes.Saved, site: Site | None, owned: tuple[str, bool] | None) -> _Story:
        now = len(self._backwards)
        known = self._by_memory.get(memory)
        if known is not None and known.backward == now and known.memory == memory:
            return known
        name, lasting = owned or (self._name(saved, site), False)
        module = name.rpartition(".")[0] if lasting else "" if owned else _class_of(site)
        lanes = self._stories.setdefault((name, module), [])
        story = next((story for story in lanes if story.backward != now), None)
        if story is None:
            story = _Story(Lane(name, module=module), lasting)
            lanes.append(story)
        story.memory, story.backward, story.since = memory, now, nodes.sequence(saved.node)
        self._by_memory[memory] = story
        if saved.tensor is not None:
            story.lane.detail = f"{str(saved.tensor.dtype).removeprefix('torch.')} {list(saved.tensor.shape)}"
            story.lane.size_bytes = saved.tensor.numel() * saved.tensor.element_size()
        return story

    def _name(self, saved: nodes.Saved, site: Site | None) -> str:
        """The variable that a line binds or reads, else the op and its line."""
        if site is None:
            return nodes.op_name(saved.node)
        key = (site, saved.what)
        if key not in self._names:
            found = _result_name(site.place) if saved.what == "result" else _input_name(site.place, saved.what)
            self._names[key] = found or f"{nodes.op_name(saved.node)} at line {site.place.line}"
        return self._names[key]

    # -- what was written ---------------------------------------------------------------------------

    def _gather_writes(self) -> None:
        """Writes since the last time, to memory that has a lane."""
        now = len(self._backwards)
        for memory, story in self._by_memory.items():
            if story.memory != memory or not (story.lasting or story.backward == now):
                continue
            for write in self.recorder.ledger.writes_of(memory):
                # Memory of passing values is used again: what was written before the save was another's.
                if story.lasting or write.before >= story.since:
                    self._written(story, now, write)

    def _written(self, story: _Story, epoch: int, write: Written) -> None:
        # The log keeps writes over several backwards: each is taken once, at the first sight of it.
        mark = ("write", write.before, write.site, write.version)
        if mark not in story.known:
            story.known.add(mark)
            when = (epoch, write.before, WRITE)
            self._add(story, when, "written", write.version, f"{write.op} writes", write.site.place)

    def _gather_steps(self) -> None:
        for step in self.recorder.ledger.steps:
            for memory in step.memories:
                story = self._by_memory.get(memory)
                when, place = (step.passes, step.before, WRITE), step.site.place
                if story is None or any(h.when == when and h.place == place for h in story.happened):
                    continue
                self._add(story, when, "written", UNKNOWN, f"{step.name}() writes", place)

    # -- what the rules judged ----------------------------------------------------------------------

    @shield
    def _heard(self, event: Event | ParallelEvent, finding: Finding) -> None:
        if not isinstance(event, StaleSave):
            return
        index = next(i for i, f in enumerate(self.recorder.report.findings) if f.key == finding.key)
        name = event.memory.name or f"saved by {event.save.op}"
        story = next((lanes[-1] for (known, _), lanes in self._stories.items() if known == name), None)
        if story is None:
            story = _Story(Lane(name, detail=str(list(event.memory.shape))), lasting=False)
            self._stories[name, ""] = [story]
        epoch = max(0, len(self._backwards) - 1)
        at = self._number_of(event.write)
        version = UNKNOWN if event.save.version is None else event.save.version
        saved = event.save.line.place if event.save.line is not None else None
        written = event.write.line.place if event.write.line is not None else None
        needed = event.needed.place if event.needed is not None else None
        # A silent write is one that the version does not count.
        after = UNKNOWN if event.silent or event.write.version is None else event.write.version
        label = _save_words(event.save.op, event.save.what)
        number = self._stale.get((saved, event.save.what)) if saved is not None else None
        since = (epoch, at, WRITE - 1) if number is None else (self._epoch_of(number), number, SAVE)
        self._mark(story, since, "saved", version, label, saved, index)
        self._mark(story, (epoch, at, WRITE), "written", after, f"{event.write.op} writes", written, index)
        label = f"needed for the gradient of {event.save.op}"
        self._mark(story, (epoch, self._backwards[-1] if self._backwards else at, BACKWARD), "needed", version,
                   label, needed, index)  # fmt: skip

    def _epoch_of(self, number: int) -> int:
        """How many backwards had begun when the node of this number was made."""
        return bisect_right(self._backwards, number)

    def _number_of(self, write: Write) -> int:
        """When a write happened, found by its line; the present where the log does not have it."""
        ledger = self.recorder.ledger
        if write.line is not None:
            logged = [w for writes in ledger.writes.values() for w in writes]
            logged += [w for writes in ledger.silent.values() for w, _ in writes]
            numbers = [w.before for w in logged if w.site.place == write.line.place]
            numbers += [s.before for s in ledger.steps if s.site.place == write.line.place]
            if numbers:
                return max(numbers)
        return clock.now()

    # -- keeping ------------------------------------------------------------------------------------

    def _add(self, story: _Story, when: When, kind: Kind, version: int, label: str, place: Place | None) -> None:
        mark = (when, kind, version, place) if kind != "needed" else (when, kind, version)
        if mark in story.known:
            return
        if self._kept >= MAX_MOMENTS:
            self._dropped += 1
            return
        self._kept += 1
        story.known.add(mark)
        story.happened.append(_Happened(when, kind, version, label, place))

    def _mark(
        self, story: _Story, when: When, kind: Kind, version: int, label: str, place: Place | None, finding: int
    ) -> None:
        """Make a moment part of a finding: the one on this line, or a new one."""
        same = [
            h
            for h in story.happened
            if h.kind == kind and h.place == place and h.when[0] <= when[0] and version in (h.version, UNKNOWN)
        ]
        if same:
            same[-1].finding = finding
        else:
            story.happened.append(_Happened(when, kind, version, label, place, finding))

    def _timeline(self) -> Timeline:
        stories = [story for lanes in self._stories.values() for story in lanes]
        numbers = {when: at for at, when in enumerate(sorted({h.when for s in stories for h in s.happened}))}
        for story in stories:
            story.happened.sort(key=lambda h: h.when)
            story.lane.moments = [
                Moment(numbers[h.when], h.kind, h.version, h.label, h.place, h.finding) for h in story.happened
            ]
        lanes = [story.lane for story in stories if story.lane.moments]
        return Timeline(sorted(lanes, key=_first_use), self._dropped)


def _first_use(lane: Lane) -> int:
    """Lanes stand in the order in which the program first used their values, not in which it initialised them."""
    return next((moment.at for moment in lane.moments if moment.kind != "written"), lane.moments[0].at)


def _save_words(op: str, what: str) -> str:
    return f"{op} saves its {'input' if what == 'self' else what}"


def _owned(frames: list[FrameType]) -> dict[int, tuple[str, bool]]:
    """The names in sight, by memory, and whether they last: parameters and buffers do, plain variables may not."""
    found: dict[int, tuple[str, bool]] = {}
    for path, module in modules(frames):
        for name, tensor, _ in tensors_of(module):
            memory = memory_of(tensor)
            if memory is not None:
                found.setdefault(memory, (f"{path}.{name}", True))
    for name, value in variables(frames):
        memory = memory_of(value) if is_tensor(value) else None
        if memory is not None:
            found.setdefault(memory, (name, False))
    return found


def _class_of(site: Site | None) -> str:
    """`Block` for a line of `Block.forward`: what the page folds lanes by."""
    return site.place.function.rpartition(".")[0] if site is not None else ""


def _result_name(place: Place) -> str:
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    targets = syntax.assigned_targets(node, file) if file and node is not None else []
    return targets[0] if targets else ""


def _input_name(place: Place, what: str) -> str:
    """The plain name that the line gives to the op as its first input."""
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    if not isinstance(node, ast.Call) or what not in ("self", "input", "mat1"):
        return ""
    first = node.args[0] if node.args else getattr(node.func, "value", None)
    return syntax.text_of(first) if isinstance(first, (ast.Name, ast.Attribute)) else ""
