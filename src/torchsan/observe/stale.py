"""Explains values that backward needs and that are no longer what was saved: loud ones, silent ones, stale casts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from torchsan.model.events import CompiledOnlyFailure, Line, Memory, Save, StaleCast, StaleSave, Write
from torchsan.observe import nodes
from torchsan.observe.accumulated import is_gradient
from torchsan.observe.foreign_writes import lines_that_write
from torchsan.observe.ledger import Ledger, Stepped, Written
from torchsan.observe.names import in_modules, in_variables
from torchsan.observe.recorder import Recorder
from torchsan.observe.refusals import whole_statement, written_name
from torchsan.observe.sites import Site, site_of, user_frames
from torchsan.observe.tensors import memory_of, touches

if TYPE_CHECKING:
    from torchsan.observe.sensors.exposure import ExposureSensor


class StaleFinder:
    def __init__(self, recorder: Recorder, ledger: Ledger | None = None) -> None:
        self.recorder = recorder
        self.ledger = ledger if ledger is not None else recorder.ledger
        # Nodes made by backwards with create_graph: their numbers, and the line of the call.
        self.made_by_backward: deque[tuple[int, int, Site]] = deque(maxlen=256)

        # Explains values that torch keeps outside the graph.
        self.elsewhere: Callable[[str, FrameType], list[StaleSave]] = lambda text, frame: []

    # -- loud: torch's version check failed ---------------------------------------------------------

    def explain(self, roots: list[Any], text: str, frame: Any) -> list[Any]:
        return [finding for event in self.loud(roots, text, frame) for finding in self.recorder.emit(event)]

    def loud(self, roots: list[Any], text: str, frame: Any) -> list[StaleSave | CompiledOnlyFailure]:
        """What there is to tell of values that torch found changed, the failing one first."""
        stale = [s for node in nodes.walk(roots) for s in nodes.saved_values(node) if s.stale]
        # The engine goes from the latest node back, so the failing one is the latest that it reached.
        stale.sort(key=lambda s: (s.message.split(" Hint:")[0] not in text, -nodes.sequence(s.node)))
        if not stale:
            # A ledger of its own: a graph that was run without data, to which nothing else belongs.
            return [*self.elsewhere(text, frame)] if self.ledger is self.recorder.ledger else []
        found: list[StaleSave | CompiledOnlyFailure] = []
        told: set[object] = set()
        events = [self._stale_event(saved, frame) for saved in stale]
        known = [event for event in events if event.write.line is not None]
        if not known and (own := self._region_overwrites_itself(stale[0], frame)) is not None:
            return [own]
        for event in known or events[:1]:
            cause = (event.write.line and event.write.line.place, event.write.op, event.write.line is None)
            if cause in told:
                continue
            told.add(cause)
            found.append(event)
        return found

    def _region_overwrites_itself(self, saved: nodes.Saved, frame: Any) -> CompiledOnlyFailure | None:
        """Compiled code wrote what its own backward needs, though the same lines in eager do not."""
        region: Any = getattr(nodes.site_of_node(saved.node), "region", None)
        write = region.only_write() if region is not None else None
        if write is None or StaleFinder(self.recorder, region.replay.ledger).loud(region.replay.roots, "", frame):
            return None
        needed = site_of(frame)
        line = Line(whole_statement(write.place), write.library_place)
        save = self._describe(saved).line
        return CompiledOnlyFailure(line, region.function, saved.message[:120], "backward", Line(needed.place), save)

    def _stale_event(self, saved: nodes.Saved, frame: Any) -> StaleSave:
        tensor = nodes.tensor_behind(saved)
        memory = memory_of(tensor) if tensor is not None else None
        sequence = nodes.sequence(saved.node)
        writes: list[Written] = []
        steps: list[Stepped] = []
        if memory is not None:
            writes = self.ledger.after(memory, sequence, saved.expected)
            steps = list(self.ledger.steps_after(memory, sequence))
            if not writes and not steps and is_gradient(memory):
                times = (saved.current or 0) - (saved.expected or 0)
                writes = self.ledger.accumulated_after(sequence, times)
        elif saved.expected is not None and saved.current is not None:
            # Torch keeps some stale tensors to itself; their versions still tell which memory it was.
            writes = self.ledger.by_versions(sequence, saved.expected, saved.current)
        write, more, maker = self._choose(writes, steps)
        needed = site_of(frame)
        return StaleSave(
            memory=self._name(memory, frame, write, tensor),
            save=self._describe(saved),
            write=write,
            needed=Line(needed.place, needed.library_place if needed.library_place else None),
            silent=False,
            more_writes=more,
            constructor=maker.place if maker is not None else None,
        )

    def event_of(
        self,
        memory: int,
        save: Save,
        writes: list[Written],
        steps: list[Stepped],
        needed: Site,
        frame: FrameType,
        *,
        silent: bool,
    ) -> StaleSave:
        """What there is to tell of a value that is kept outside the graph."""
        write, more, maker = self._choose(writes, steps)
        return StaleSave(
            memory=self._name(memory, frame, write, None),
            save=save,
            write=write,
            needed=Line(needed.place, needed.library_place),
            silent=silent,
            more_writes=more,
            constructor=maker.place if maker is not None else None,
        )

    def _describe(self, saved: nodes.Saved) -> Save:
        save = nodes.describe_save(saved)
        if save.line is None:
            number = nodes.sequence(saved.node)
            site = next((s for start, end, s in self.made_by_backward if start <= number < end), None)
            if site is not None:
                return replace(save, line=Line(site.place), in_backward=True)
        return replace(save, in_backward=False)

    def _choose(self, writes: list[Written], steps: list[Stepped]) -> tuple[Write, tuple[Write, ...], Site | None]:
        """The first write after the save is the one to blame; the others are told after it."""
        events: list[tuple[int, Write, Site | None]] = [(w.before, described(w), w.maker) for w in writes]
        events += [(s.before, described_step(s), None) for s in steps]
        events.sort(key=lambda entry: entry[0])
        if not events:
            return Write("", "unknown", None), (), None
        different = [w for _, w, _ in events[1:] if w.line != events[0][1].line]
        return events[0][1], tuple(dict.fromkeys(different)), events[0][2]

    def _name(self, memory: int | None, frame: Any, write: Write, tensor: Any) -> Memory:
        shape = tuple(tensor.shape) if tensor is not None else ()
        frames = user_frames(frame)
        if memory is not None:
            owned = in_modules(memory, frames)
            if owned is not None:
                return owned
        shown = written_name(write.line.place) if write.line is not None else ""
        if not shown and write.line is not None:
            shown = self.recorder.names.get(write.line.place, "")
        if not shown and memory is not None:
            shown = in_variables(memory, frames)
        return Memory(shown, shape=shape)

    # -- silent: written behind the version counter -------------------------------------------------

    def find_silent(self, roots: list[Any], frame: Any, exposure: ExposureSensor | None) -> None:
        for node in nodes.walk(roots):
            sequence = nodes.sequence(node)
            if not 0 <= int(sequence) < nodes.LAST:
                continue
            self._tell_spoilt(node, sequence, frame, exposure)
            for saved in nodes.saved_values(node):
                if saved.stale or saved.tensor is None or nodes.never_read(saved):
                    continue
                memory = memory_of(saved.tensor)
                if memory is None:
                    continue
                writes = self._silent_writes(memory, sequence, saved.tensor)
                if any(write.kind == "recomputed" for write in writes):
                    self._tell_recomputed(saved, writes, frame)
                    continue
                steps = list(self.ledger.steps_after(memory, sequence, silent_only=True))
                if writes or steps:
                    self._tell_silent(saved, memory, writes, steps, frame, exposure)

    def _silent_writes(self, memory: int, sequence: int, tensor: torch.Tensor) -> list[Written]:
        return [
            write
            for write, _ in self.ledger.silent.get(memory, [])
            if write.before > sequence and touches(tensor, write.start, write.end)
        ]

    def _tell_silent(
        self,
        saved: nodes.Saved,
        memory: int,
        writes: list[Written],
        steps: list[Stepped],
        frame: Any,
        exposure: ExposureSensor | None,
    ) -> None:
        write, more, maker = self._choose(writes, steps)
        name = self._name(memory, frame, write, saved.tensor)
        needed = site_of(frame)
        exposed = exposure.exposed_at(memory) if exposure is not None else None
        if write.kind == "foreign" and write.line is not None:
            lines = lines_that_write(write.line.place, write.op)
            if lines:
                first, *others = (replace(write, line=Line(place)) for place in lines)
                write, more = first, (*others, *more)
        self.recorder.emit(
            StaleSave(
                memory=name,
                save=self._describe(saved),
                write=write,
                needed=Line(needed.place, needed.library_place),
                silent=True,
                more_writes=more,
                constructor=maker.place if maker is not None else None,
                exposed=exposed,
            )
        )

    def _tell_spoilt(self, node: Any, sequence: int, frame: Any, exposure: ExposureSensor | None) -> None:
        """A compiled region whose lines change what they have saved: traced so, it computes the same wrong gradient."""
        region: Any = getattr(nodes.site_of_node(node), "region", None)
        for call in region.spoilt_calls(sequence) if region is not None else ():
            write = described(call.write)
            name, needed = self._name(call.memory, frame, write, None), site_of(frame)
            exposed = exposure.exposed_at(call.memory) if exposure is not None and call.memory is not None else None
            self.recorder.emit(
                StaleSave(name, call.save, write, Line(needed.place, needed.library_place), True, exposed=exposed)
            )

    def _tell_recomputed(self, saved: nodes.Saved, writes: list[Written], frame: Any) -> None:
        """Compiled code keeps what it was given to compute from it again, and has overwritten it since."""
        region: Any = getattr(nodes.site_of_node(saved.node), "region", None)
        if region is None or not region.overwrites(saved):
            return
        # The first write of a call spoils what the backward starts from.
        line = described(next(write for write in writes if write.kind == "recomputed")).line
        if line is not None:
            needed, save = Line(site_of(frame).place), self._describe(saved).line
            self.recorder.emit(CompiledOnlyFailure(line, region.function, "", "gradient", needed, save))

    # -- autocast's copies --------------------------------------------------------------------------

    def find_stale_casts(self, roots: list[Any], frame: Any) -> None:
        """A cast that is older than a step on the weight it was made from, in a graph that is younger."""
        newest = max((nodes.sequence(root) for root in roots), default=-1)
        for node in nodes.walk(roots):
            if nodes.op_name(node) != "to_copy":
                continue
            weight = getattr(node.next_functions[0][0], "variable", None)
            memory = memory_of(weight) if weight is not None else None
            made = nodes.sequence(node)
            step = next(
                (s for s in self.ledger.steps if s.autocast and memory in s.memories and made < s.before <= newest),
                None,
            )
            if memory is None or step is None or not self._used_after(roots, node, step.before):
                continue
            needed = site_of(frame)
            write = described_step(step)
            name = self._name(memory, frame, write, weight)
            self.recorder.emit(StaleCast(name, write, nodes.line_of_node(node), Line(needed.place)))
            return

    def _used_after(self, roots: list[Any], cast: Any, number: int) -> bool:
        """Did an op that came after take the cast as its input?"""
        return any(
            nodes.sequence(node) >= number and any(parent is cast for parent, _ in node.next_functions)
            for node in nodes.walk(roots)
        )


def described(write: Written) -> Write:
    line = Line(whole_statement(write.site.place), write.site.library_place)
    return Write(write.op, write.kind, line, write.version)


def described_step(step: Stepped) -> Write:
    return Write(step.name, "optimizer", Line(step.site.place, None))
