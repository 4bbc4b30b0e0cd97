"""Measures what each backward pass finds kept, within a share of the run's time."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from statistics import median
from types import FrameType
from typing import Any

import torch

from torchsan import compat, compat_compile
from torchsan.model.events import Line
from torchsan.model.memory import KeptRow, Memory, ModuleRow, StepMemory
from torchsan.model.memory_events import GraphRetained, SmallViewKept
from torchsan.observe.holders.census import take_census
from torchsan.observe.kept.owners import Owners
from torchsan.observe.kept.peak import PeakMeter, living
from torchsan.observe.kept.saved import Contents, Kept, kept_by, sequences_of
from torchsan.observe.names import local_names
from torchsan.observe.objects import is_tensor
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.sites import site_of
from torchsan.observe.tensors import memory_of
from torchsan.observe.timing import Share

# Looks that every run has, and the share of its time that looking may take beyond them; and the same for asking
# whether a graph that was retained is used again.
ALLOWANCE, SHARE = 0.15, 0.02
ASKING = 0.1, 0.01
MAX_STEPS = 2_000
# Steps that are left alone to compare with, after so many seconds of steps that were followed.
PLAIN, WARM = 2, 1.0
# After so many passes without news only every so manieth is measured.
NOTHING_NEW, RARELY = 8, 5
MAX_RETAINED = 256
# A view is small at a quarter of its memory; what it keeps is worth a word from this size and share on.
SMALL, SMALLEST, WORTH = 4, 64 * 1024, 0.05


@dataclass(slots=True)
class _Retained:
    line: Line
    sequences: set[int]
    bytes: int
    used: bool = False


class _Pace:
    """How long a step takes, from one backward pass to the next, and what following its modules adds."""

    def __init__(self) -> None:
        self._times: dict[bool, list[float]] = {True: [], False: []}
        self._last: float | None = None

    def passed(self, now: float, *, followed: bool) -> float:
        """What the step that ends took beyond others."""
        last, self._last = self._last, now
        times = self._times[followed]
        # The first steps warm up, and the second is followed op by op.
        if last is None or len(times) >= MAX_STEPS:
            return 0.0
        times.append(now - last)
        others = self._times[False]
        return max(0.0, now - last - median(others)) if followed and others else 0.0

    def lacks_plain(self) -> bool:
        """Has the run gone on for long enough that some steps should show what one takes that nobody follows?"""
        followed = self._times[True]
        return len(self._times[False]) < PLAIN and len(followed) >= 6 and sum(followed[3:]) > WARM

    def usual(self) -> float:
        return median(self._times[False] or self._times[True][3:] or self._times[True] or [0.0])


class _News:
    """Passes that keep what was seen before will go on so: then most of them are left alone."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()
        self._since = self._left = 0

    def measured(self, size: int, nodes: int) -> None:
        known = (size, nodes) in self._seen
        self._since = self._since + 1 if known else 0
        self._seen.add((size, nodes))
        self._left = RARELY - 1 if self._since >= NOTHING_NEW else 0

    def expected(self) -> bool:
        """Of the next pass; asked once for each."""
        self._left -= 1
        return self._left < 0


class MemorySensor:
    """At the start of a backward the graph is whole: what it keeps then is what the step needed memory for."""

    def __init__(self, recorder: Recorder, memory: Memory) -> None:
        self.recorder = recorder
        self.memory = memory
        self.owners = Owners()
        self.share = Share(ALLOWANCE, SHARE)
        self.asking = Share(*ASKING)
        self._best = -1
        self._retained: deque[_Retained] = deque(maxlen=MAX_RETAINED)
        self._unsure = False  # a pass may have come back to a retained graph, and nobody has looked
        self._pace = _Pace()
        self._news = _News()
        self.peak = PeakMeter(lambda: recorder.backward is not None)

    def install(self) -> None:
        self._follow(True)
        self.recorder.before_backward.append(self._backward)
        self.recorder.after_backward.append(self._after_backward)

    def close(self) -> None:
        self._end_of_step()
        self.owners.close()
        self.memory.modules = [
            ModuleRow(path, use.kind, use.calls, use.seconds, use.call, use.inplace)
            for path, use in self.owners.uses.items()
        ]
        self.memory.step_seconds = self._pace.usual()
        if not self._unsure:
            self._tell_retained()
        left = self.memory.passes - len(self.memory.steps)
        if left > 0:
            self.recorder.report.notes.append(
                f"memory: {len(self.memory.steps)} of {self.memory.passes} backward passes were measured; "
                f"the others were like these, or looking at all would have taken more than {SHARE:.0%} of the run"
            )

    @shield
    def _after_backward(self, passes: int) -> None:
        """From the end of the first backward to the end of the second there is a whole step."""
        if passes == 1 and not self.recorder.paused and not compat_compile.is_in_use():
            self.peak.begin(passes)
        # To know the modules of the next graph takes time as well, so it is decided before there is one. Compiled code
        # would be compiled anew each time that hooks come or go.
        if not compat_compile.is_in_use():
            more = self._news.expected() and len(self.memory.steps) < MAX_STEPS and not self._pace.lacks_plain()
            self._follow(more and self.share.allows())

    def _follow(self, on: bool) -> None:
        """Whether the next pass will be measured."""
        self.owners.follow(on)
        if on is (self.recorder.owners is None):
            self.recorder.owners = self.owners if on else None
            self.recorder.owners_changed()

    def _end_of_step(self) -> None:
        if self.peak.running:
            self.peak.end()
            self.memory.followed = self.peak.found

    @shield
    def _backward(self, roots: list[Any], frame: FrameType) -> None:
        self.memory.passes += 1
        followed = self.recorder.owners is not None
        own = self.share.spent + self.asking.spent
        self.share.earn(-self._pace.passed(time.process_time() - own, followed=followed))
        if self.memory.passes >= 3:
            self._end_of_step()
        contents = None
        # Where code is compiled, modules are followed all the time.
        if followed and (not compat_compile.is_in_use() or self.share.allows()):
            with self.share.spending():
                contents = self._measure(roots, frame)
        self._retaining(roots, contents, frame)

    def _measure(self, roots: list[Any], frame: FrameType) -> Contents:
        contents = kept_by(roots)
        state = self.owners.state()
        graph = [one for one in contents.kept if not one.leaf and one.memory not in state]
        total = sum(one.storage_bytes for one in graph)
        held = live = 0
        if total > self._best:
            self._best = total
            held, live = _bytes_alive()
            self.memory.kept = _rows(graph)
            self.memory.kept_anyway_bytes = contents.bytes - total
            self._small_views(graph, total, frame)
        self.memory.steps.append(StepMemory(self.memory.passes, total, contents.nodes, held, live))
        self._news.measured(total, contents.nodes)
        return contents

    def _small_views(self, graph: list[Kept], total: int, frame: FrameType) -> None:
        """Whole memories that only a small saved view keeps; not those that somebody holds anyway."""
        least = max(SMALLEST, total * WORTH)
        found = {
            one.memory: one
            for one in graph
            if one.storage_bytes - one.tensor_bytes >= least and one.tensor_bytes * SMALL <= one.storage_bytes
        }
        if not found:
            return
        for holding in take_census(frame).holdings:
            value = holding.value
            view = found.get(memory_of(value) or 0) if is_tensor(value) else None
            if view is not None and value.numel() * value.element_size() > view.tensor_bytes:
                del found[view.memory]
        for one in found.values():
            if one.site is not None:
                line = Line(one.site.place, one.site.library_place)
                self.recorder.emit(SmallViewKept(one.op, line, one.tensor_bytes, one.storage_bytes))

    def _retaining(self, roots: list[Any], contents: Contents | None, frame: FrameType) -> None:
        """Which backward passes asked for their graph to be kept, and whether a later one came back to it."""
        asked = local_names(frame) if frame.f_code.co_name == "backward" else {}
        retains = asked.get("retain_graph") is True and asked.get("create_graph") is not True
        if self._unsure or not (retains or self._retained):
            return
        if contents is None:
            if not self.asking.allows():
                self._unsure = True
                return
            with self.asking.spending():
                sequences = sequences_of(roots)
        else:
            sequences = contents.sequences
        for kept in self._retained:
            kept.used = kept.used or not kept.sequences.isdisjoint(sequences)
        if retains:
            site = site_of(frame)
            total = self.memory.steps[-1].kept_bytes if self.memory.steps else 0
            self._retained.append(_Retained(Line(site.place, site.library_place), sequences, total))

    def _tell_retained(self) -> None:
        lines: dict[Line, list[_Retained]] = {}
        for kept in self._retained:
            lines.setdefault(kept.line, []).append(kept)
        for line, passes in lines.items():
            if not any(kept.used for kept in passes):
                self.recorder.emit(GraphRetained(line, max(kept.bytes for kept in passes), len(passes)))


def _bytes_alive() -> tuple[int, int]:
    """Bytes of leaves with their gradients, and of every tensor that Python knows; each memory once."""
    leaves: dict[int, int] = {}
    every: dict[int, int] = {}
    for value in living():
        _add(every, value)
        if value.requires_grad and compat.is_leaf(value):
            _add(leaves, value)
            if is_tensor(value.grad):
                _add(leaves, value.grad)
    return sum(leaves.values()), sum({**every, **leaves}.values())


def _add(found: dict[int, int], tensor: torch.Tensor) -> None:
    memory = memory_of(tensor)
    if memory is not None:
        found[memory] = torch._C.TensorBase.untyped_storage(tensor).nbytes()


def _rows(kept: list[Kept]) -> list[KeptRow]:
    """One row for each line, module and saved variable, the largest first."""
    sums: dict[tuple[str, int, str, str], list[int]] = {}
    for one in kept:
        place = one.site.place if one.site is not None else None
        what = f"{one.op}: packed by hooks" if one.packed else f"{one.op}: {_plain(one.what)}"
        key = (place.path if place else "", place.line if place else 0, one.module, what)
        total = sums.setdefault(key, [0, 0])
        total[0] += one.storage_bytes
        total[1] += 1
    rows = [KeptRow(*key, bytes=size, values=count) for key, (size, count) in sums.items()]
    return sorted(rows, key=lambda row: (-row.bytes, row.path, row.line))


def _plain(what: str) -> str:
    return {"self": "its input", "result": "its result", "tensors": "saved by its forward"}.get(what, f"`{what}`")
