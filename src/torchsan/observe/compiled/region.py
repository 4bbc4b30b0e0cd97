"""A compiled region while it runs: the autograd node it makes, and its writes to what it was given."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchsan import compat_compile
from torchsan.model.events import Line, Save
from torchsan.observe import nodes
from torchsan.observe.clock import clock
from torchsan.observe.compiled.frames import RegionFrame, name_lines, stands_at_call, traced_frame, whole_frames
from torchsan.observe.compiled.lines import LineSite
from torchsan.observe.compiled.noted import Noted, version_of
from torchsan.observe.compiled.parts import Parts
from torchsan.observe.compiled.records import RegionWrite, Replay
from torchsan.observe.compiled.refused import explained_running
from torchsan.observe.compiled.scopes import Part
from torchsan.observe.compiled.spoilt import SpoiltCall
from torchsan.observe.compiled.writing import RegionWriting, region_writing
from torchsan.observe.guards import guards
from torchsan.observe.ledger import Written
from torchsan.observe.sites import USER, Site, kind_of, site_of, user_frames
from torchsan.observe.tensors import changed_since, is_plain, looked_at, memory_of

if TYPE_CHECKING:
    from torchsan.observe.compiled.sensor import CompiledSensor
    from torchsan.observe.compiled.trials import Trials

_getframe = sys._getframe
# The graph that dynamo made is kept for so many calls.
KEPT_FOR = 4


class RegionSite(LineSite):
    """What the autograd node of a region is marked with: the region, and the line of its last op."""

    region: Region


class Region:
    def __init__(self, sensor: CompiledSensor, replay: Replay, function: str, trials: Trials | None = None) -> None:
        self.sensor = sensor
        self.recorder = sensor.recorder
        self.replay = replay
        self.function = function
        self.calls = 0
        self.module: torch.fx.GraphModule | None = None
        self.trials = trials
        self.node_site: RegionSite | None = None
        # Does its forward overwrite memory from which its backward computes again?
        self.overwrites_saved = False
        # What its lines save and then write past the version counter, by target; and the calls that have done so.
        self.spoils = {spoilt.target: spoilt for spoilt in reversed(replay.spoilt) if spoilt.target is not None}
        self.spoilt: deque[SpoiltCall] = deque(maxlen=64)
        if replay.last is not None:
            self.node_site = RegionSite(replay.last.place, replay.last.library_place)
            self.node_site.region = self
        # Writes by what is written; a region seldom writes more than a few.
        self.writes: dict[int, list[RegionWrite]] = {}
        for write in replay.writes:
            if write.kind == "optimizer" and function.endswith(".step"):
                write = replace(write, op=function)
            self.writes.setdefault(write.target, []).append(write)

    def wrap(self, compiled: Callable[..., Any], module: torch.fx.GraphModule) -> Callable[..., Any]:
        """The function that dynamo calls for this region, with our look around it."""
        if compiled is module or getattr(compiled, "__self__", None) is module:
            # The graph runs as Python, op by op: all it takes is to know the line of each.
            name_lines(module)
            return compiled
        recorder, region = self.recorder, self
        self.module = module

        def run(*args: Any) -> Any:
            if not recorder.active:
                return compiled(*args)
            outer, error = recorder.region, None
            noted = region.before(args, _getframe(1)) if region.writes else None
            recorder.region = region
            trials = region.trials
            kept = trials.before(args, _getframe(1)) if trials is not None else None
            try:
                result = compiled(*args)
                if kept is not None and trials is not None:
                    trials.after(args, kept, _getframe(1))
                return result
            except Exception as raised:
                error = raised
                raise
            finally:
                recorder.region = outer
                if noted:
                    region.after(noted)
                if region.module is not None or region.replay.seen_spoilt:
                    region.ran(args, error)
                error = None  # which would else hold this frame, and this frame it

        def run_quiet(*args: Any) -> Any:
            outer, recorder.region = recorder.region, region
            error = None
            try:
                return compiled(*args)
            except Exception as raised:
                error = raised
                raise
            finally:
                recorder.region = outer
                if region.module is not None:
                    region.ran(args, error)
                error = None  # which would else hold this frame, and this frame it

        wrapper = run if self.writes or self.trials is not None else run_quiet
        wrapper.__dict__.update(getattr(compiled, "__dict__", {}))
        wrapper.__wrapped__ = compiled  # type: ignore[attr-defined]
        return wrapper

    def ran(self, args: tuple[Any, ...], error: Exception | None) -> None:
        """A call is over. What torch refuses it refuses at the first calls: then the graph need not be kept."""
        if error is not None and self.module is not None and self.recorder.active:
            explained_running(self, error, self.module, args)
        self.calls += 1
        if self.replay.seen_spoilt:
            self.recorder.ledger.suspect()
        if self.trials is not None and self.trials.over:
            self.trials = None
        if self.calls >= KEPT_FOR:
            self.module = None

    def site_at(self, frame: FrameType) -> Site:
        """The line of an autograd node that is made while the region runs."""
        if self.node_site is not None:
            return self.node_site
        # All of it is torch's own code: one line has called it, however many nodes it makes.
        found = self.recorder.state.called = self.recorder.state.called or site_of(frame)
        return found

    def describe_save(self, saved: nodes.Saved) -> Save:
        """A value that the region keeps for its backward, told by the line that needs it."""
        known = self.sensor.saves.get(compat_compile.aot_id(saved.node), [])
        index = int(saved.what) if saved.what.isdigit() else -1
        if not 0 <= index < len(known):
            return Save("the compiled region", "", None, saved.expected)
        save = known[index]
        line = Line(save.site.place, save.site.library_place) if save.site is not None else None
        return Save(save.op, "result" if save.is_result else "", line, saved.expected)

    def overwrites(self, saved: nodes.Saved) -> bool:
        """Did the forward of the region write back to memory from which its backward computes again?"""
        known = self.sensor.saves.get(compat_compile.aot_id(saved.node), [])
        return saved.what.isdigit() and int(saved.what) < len(known) and known[int(saved.what)].overwritten

    def spoilt_calls(self, sequence: int) -> Iterator[SpoiltCall]:
        """Of the call that made the node with this number: what changed unseen that it needs."""
        yield from (call for call in self.spoilt if call.began <= sequence < call.ended)
        for known in self.replay.seen_spoilt:
            written = Written(sequence, known.site, known.op, 0, "data")
            yield SpoiltCall(sequence, sequence, None, known.save, written)

    def only_write(self) -> LineSite | None:
        """The one line at which the region writes what it was given; None where there are several, or none."""
        sites = {write.site for writes in self.writes.values() for write in writes if write.kind == "op"}
        lines = {site.place.line for site in sites if site is not None}
        return next(iter(sites)) if len(lines) == 1 and None not in sites and self.replay.complete else None

    # -- writes to what the region was given --------------------------------------------------------

    def before(self, args: tuple[Any, ...], frame: FrameType) -> list[Noted]:
        """Look at what is about to be written. A guard may refuse: that goes on to the program."""
        if guards.on:
            self._ask_guards(args, frame)
        try:
            return self._noted(args, frame) if not self.recorder.paused else []
        except Exception as error:
            self.recorder.give_up(error)
            return []

    def _ask_guards(self, args: tuple[Any, ...], frame: FrameType) -> None:
        for target, writes in self.writes.items():
            tensor = self._tensor(target, args)
            if tensor is not None:
                site = self._site(writes[0], frame)
                guards.before_write((tensor,), RegionFrame(site, frame))  # type: ignore[arg-type]

    def _noted(self, args: tuple[Any, ...], frame: FrameType) -> list[Noted]:
        before = clock.now()
        notes: list[Noted] = []
        for target, writes in self.writes.items():
            tensor = self._tensor(target, args)
            memory = memory_of(tensor) if tensor is not None else None
            if memory is not None and tensor is not None:
                notes.append(self._note(tensor, memory, before, [(w, self._site(w, frame), None) for w in writes]))
        self._look_closely(notes, args, frame)
        return notes

    def _note(self, tensor: torch.Tensor, memory: int, before: int, writes: list[Any]) -> Noted:
        exposure = self.sensor.exposure
        silent = exposure.before_write(memory, tensor, before) if exposure is not None and exposure.exposed else None
        apart = exposure.before_region(memory, tensor) if exposure is not None and writes[0][0].kind == "op" else None
        judged = torch.is_grad_enabled() and (self.overwrites_saved or writes[0][0].target in self.spoils)
        kept = looked_at(tensor) if judged and is_plain(tensor) else None
        return Noted(tensor, memory, before, version_of(tensor), silent, kept, writes, apart)

    def _look_closely(self, notes: list[Noted], args: tuple[Any, ...], frame: FrameType) -> None:
        """Ask who else holds what is about to be written."""
        if self.sensor.aliases is None:
            return
        writings: list[tuple[Any, int]] = []
        places: list[tuple[Noted, int]] = []
        parts = Parts(lambda target: self._tensor(target, args))
        for note in notes:
            for index, (write, site, _) in enumerate(note.writes):
                seen = self.sensor.visit(site) if write.kind == "op" else None
                writing = self._writing(write, site, parts, args, frame, seen) if seen is not None else None
                if writing is not None:
                    writings.append((writing, note.memory))
                    places.append((note, index))
        tokens = self.sensor.aliases.before_region(writings) if writings else []
        for (note, index), token in zip(places, tokens, strict=True):
            write, site, _ = note.writes[index]
            note.writes[index] = (write, site, token)

    def _writing(
        self, write: RegionWrite, site: Site, parts: Parts, args: tuple[Any, ...], frame: FrameType, seen: int
    ) -> RegionWriting | None:
        part = parts.cut(Part(write.receiver, write.target, write.view, write.shape))
        if part is None or not is_plain(part) or part.numel() == 0:
            return None
        at = traced_frame(site, frame, part, parts.scopes(write.scopes))
        frames = whole_frames(user_frames(at))
        if not frames:
            return None
        return region_writing(write.op, site, part, write.operands, write.manner, at, frames, seen, args)

    def after(self, notes: list[Noted]) -> None:
        try:
            for note in notes:
                self._log(note)
        except Exception as error:
            self.recorder.give_up(error)

    def _log(self, note: Noted) -> None:
        tensor, memory = note.tensor, note.memory
        now = version_of(tensor)
        changed = changed_since(tensor, note.kept) if note.kept is not None else None
        ledger, exposure = self.recorder.ledger, self.sensor.exposure
        silent = note.silent
        other = changed_since(tensor, note.apart) if note.apart is not None else None
        for write, site, token in note.writes:
            written = Written(note.before, site, write.op, max(now, 0), write.kind)
            if now > note.version or note.version < 0:
                ledger.add(memory, written)
            elif write.kind == "op":
                # AOTAutograd hides a write from the version counter where eager would.
                ledger.add_silent(memory, written._replace(kind="data"))
            if other is not None and now > note.version:
                ledger.add_silent(memory, written._replace(kind="data", start=other[0], end=other[1]))
                other = None
            if write.kind == "op" and changed is not None:
                self._note_spoilt(note, write, written._replace(before=clock.now(), start=changed[0], end=changed[1]))
            if silent is not None and exposure is not None:
                exposure.after_write(memory, tensor, silent, written._replace(kind="data"))
                silent = None
            if token is not None:
                self.sensor.aliases.after(token)

    def _note_spoilt(self, note: Noted, write: RegionWrite, late: Written) -> None:
        """The write changed what the region's backward takes: after the save, whatever the versions say."""
        known = self.spoils.get(write.target)
        if known is not None and known.site is write.site:
            self.spoilt.append(
                SpoiltCall(note.before, late.before, note.memory, known.save, late._replace(kind="data"))
            )
            self.recorder.ledger.add_silent(note.memory, late._replace(kind="data"))
        elif self.overwrites_saved:
            self.recorder.ledger.add_silent(note.memory, late._replace(kind="recomputed"))

    def _site(self, write: RegionWrite, frame: FrameType) -> Site:
        """The line inside the region; the line that called it where all of it is torch's own code."""
        if write.site is not None:
            return write.site
        at: FrameType | None = frame
        called: set[str] = set()
        while at is not None and (kind_of(at.f_code) != USER or not stands_at_call(at, called)):
            called.add(at.f_code.co_name)
            at = at.f_back
        return site_of(at if at is not None else frame)

    def _tensor(self, target: int, args: tuple[Any, ...]) -> torch.Tensor | None:
        """What a write goes to in this call."""
        found = self.replay.held[-target - 1]() if target < 0 else args[target]
        return found if isinstance(found, torch.Tensor) else None
