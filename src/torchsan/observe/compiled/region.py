"""A compiled region while it runs: the autograd node it makes, and its writes to what it was given."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchsan import compat_compile
from torchsan.model.events import Line, Save
from torchsan.observe import expressions as syntax
from torchsan.observe import nodes
from torchsan.observe.clock import clock
from torchsan.observe.compiled.lines import LineSite
from torchsan.observe.compiled.replay import RegionWrite, Replay, node_site
from torchsan.observe.guards import guards
from torchsan.observe.ledger import Written
from torchsan.observe.sites import USER, Site, frame_place, kind_of, register, site_of
from torchsan.observe.tensors import memory_of

if TYPE_CHECKING:
    from torchsan.observe.compiled.sensor import CompiledSensor

_getframe = sys._getframe


class RegionSite(LineSite):
    """What the autograd node of a region is marked with: the region, and the line of its last op."""

    region: Region


class _Code:
    """Stands for the code of a line that runs compiled, for those who ask a frame where it is."""

    co_flags = 0
    co_argcount = co_kwonlyargcount = 0
    co_varnames: tuple[str, ...] = ()

    def __init__(self, site: Site) -> None:
        self.co_filename = site.place.path
        self.co_name = self.co_qualname = site.place.function


class RegionFrame:
    """A frame at a line of a region, as far as guards of writes look at frames."""

    f_lasti = 0

    def __init__(self, site: Site, back: FrameType) -> None:
        self.f_code: Any = register(_Code(site), site)
        self.f_back = back
        self.f_globals = back.f_globals
        self.f_locals: dict[str, Any] = {}


class Region:
    def __init__(self, sensor: CompiledSensor, replay: Replay, function: str) -> None:
        self.sensor = sensor
        self.recorder = sensor.recorder
        self.replay = replay
        self.function = function
        self.node_site: RegionSite | None = None
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

        def run(*args: Any) -> Any:
            if not recorder.active:
                return compiled(*args)
            outer = recorder.region
            noted = region.before(args, _getframe(1)) if region.writes else None
            recorder.region = region
            try:
                return compiled(*args)
            finally:
                recorder.region = outer
                if noted:
                    region.after(noted)

        def run_quiet(*args: Any) -> Any:
            outer, recorder.region = recorder.region, region
            try:
                return compiled(*args)
            finally:
                recorder.region = outer

        wrapper = run if self.writes else run_quiet
        wrapper.__dict__.update(getattr(compiled, "__dict__", {}))
        wrapper.__wrapped__ = compiled  # type: ignore[attr-defined]
        return wrapper

    def site_at(self, frame: FrameType) -> Site:
        """The line of an autograd node that is made while the region runs."""
        if self.node_site is None:
            return site_of(frame)
        return self.node_site

    def describe_save(self, saved: nodes.Saved) -> Save:
        """A value that the region keeps for its backward, told by the line that needs it."""
        known = self.sensor.saves.get(compat_compile.aot_id(saved.node), [])
        index = int(saved.what) if saved.what.isdigit() else -1
        if not 0 <= index < len(known):
            return Save("the compiled region", "", None, saved.expected)
        save = known[index]
        line = Line(save.site.place, save.site.library_place) if save.site is not None else None
        return Save(save.op, "result" if save.is_result else "", line, saved.expected)

    def only_write(self) -> LineSite | None:
        """The one line at which the region writes what it was given; None where there are several, or none."""
        sites = {write.site for writes in self.writes.values() for write in writes if write.kind == "op"}
        lines = {site.place.line for site in sites if site is not None}
        return next(iter(sites)) if len(lines) == 1 and None not in sites and self.replay.complete else None

    # -- writes to what the region was given --------------------------------------------------------

    def before(self, args: tuple[Any, ...], frame: FrameType) -> list[Any]:
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

    def _noted(self, args: tuple[Any, ...], frame: FrameType) -> list[Any]:
        before = clock.now()
        notes: list[Any] = []
        exposure, aliases = self.sensor.exposure, self.sensor.aliases
        for target, writes in self.writes.items():
            tensor = self._tensor(target, args)
            memory = memory_of(tensor) if tensor is not None else None
            if memory is None or tensor is None:
                continue
            silent = (
                exposure.before_write(memory, tensor, before) if exposure is not None and exposure.exposed else None
            )
            tokens = []
            for write in writes:
                site = self._site(write, frame)
                token = None
                if write.kind == "op" and aliases is not None and self.sensor.looks_closely(site):
                    seen = self.sensor.visits[site] - 1
                    token = aliases.before(write.op, site, tensor, memory, (tensor,), frame, seen)
                tokens.append((write, site, token))
            notes.append((tensor, memory, before, _version(tensor), silent, tokens))
        return notes

    def after(self, notes: list[Any]) -> None:
        try:
            for tensor, memory, before, version, silent, tokens in notes:
                self._log(tensor, memory, before, version, silent, tokens)
        except Exception as error:
            self.recorder.give_up(error)

    def _log(self, tensor: Any, memory: int, before: int, version: int, silent: Any, tokens: list[Any]) -> None:
        now = _version(tensor)
        ledger = self.recorder.ledger
        for write, site, token in tokens:
            if now > version or version < 0:
                ledger.add(memory, Written(before, site, write.op, max(now, 0), write.kind))
            elif write.kind == "op":
                # AOTAutograd hides a write from the version counter where eager would.
                ledger.add_silent(memory, Written(before, site, write.op, max(now, 0), "data"))
            if silent is not None and self.sensor.exposure is not None:
                written = Written(before, site, write.op, max(now, 0), "data")
                self.sensor.exposure.after_write(memory, tensor, silent, written)
                silent = None
            if token is not None:
                self.sensor.aliases.after(token)

    def _site(self, write: RegionWrite, frame: FrameType) -> Site:
        """The line inside the region; the line that called it where all of it is torch's own code."""
        if write.site is not None:
            return write.site
        at: FrameType | None = frame
        called: set[str] = set()
        while at is not None and (kind_of(at.f_code) != USER or not _stands_at_call(at, called)):
            called.add(at.f_code.co_name)
            at = at.f_back
        return site_of(at if at is not None else frame)

    def _tensor(self, target: int, args: tuple[Any, ...]) -> torch.Tensor | None:
        """What a write goes to in this call."""
        found = self.replay.held[-target - 1]() if target < 0 else args[target]
        return found if isinstance(found, torch.Tensor) else None


def name_lines(module: torch.fx.GraphModule) -> None:
    """Let every instruction of a graph's own code stand for the line that it was traced from."""
    known = compat_compile.code_lines(module)
    if known is None:
        return
    code, lines = known
    for index, (line, *_) in enumerate(code.co_positions()):
        site = node_site(lines[line]) if line in lines else None
        if site is not None:
            register(code, site, index * 2)


def _stands_at_call(frame: FrameType, called: set[str]) -> bool:
    """Code that dynamo wrote also has instructions that are on no line: believe it only at a call of what runs."""
    if not compat_compile.is_generated(frame.f_code):
        return True
    place = frame_place(frame)
    file = syntax.file_of(place.path)
    call = file.at(place) if file is not None else None
    return isinstance(call, ast.Call) and syntax.text_of(call.func).rpartition(".")[2] in called


def _version(tensor: torch.Tensor) -> int:
    try:
        return int(tensor._version)
    except Exception:
        return -1  # inference tensors count no versions
