"""Watches autograd itself: the line of every node, and each backward pass before and after it runs."""

from __future__ import annotations

import sys
import threading
from _thread import _count as other_threads
from _thread import get_ident
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.graph
import torch.fx.traceback

from torchsan import compat, compat_compile
from torchsan.compat_compile import untraced
from torchsan.model.events import Line
from torchsan.observe import nodes
from torchsan.observe.clock import Stamp, clock
from torchsan.observe.cuts import CutFinder
from torchsan.observe.keepsakes import Keepsakes
from torchsan.observe.objects import text_of, told_of
from torchsan.observe.overlaps import OVERLAP, explain_overlap
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.refusals import innermost_user_frame
from torchsan.observe.reuse import explain_reuse
from torchsan.observe.sites import Mark, Site, _sites, site_of
from torchsan.observe.stale import StaleFinder
from torchsan.observe.writing import worth_a_look

if TYPE_CHECKING:
    from torchsan.observe.sensors.exposure import ExposureSensor
    from torchsan.observe.sensors.warned import WarningSensor

_getframe = sys._getframe
# How many nodes after an exposure, or after a backward, are taken for ones that may save exposed memory.
LOOKS = 16
ADVICE = "Error detected in "
NO_GRAPH = "does not require grad and does not have a grad_fn"


class _Noted(list[str]):
    """What torch keeps with a node, where a site alone is not enough: the stack that a user's own anomaly mode asks
    for, or the moment at which one of several threads made the node."""

    mark: Mark | None
    stamp: Stamp | None

    @property
    def site(self) -> Site | None:
        return self.mark.site if self.mark is not None else None


class _Running(threading.local):
    """The backward passes that are under way in a thread."""

    depth = 0


class GraphSensor:
    def __init__(self, recorder: Recorder, warned: WarningSensor) -> None:
        self.recorder = recorder
        self._warned = warned
        self.ledger = recorder.ledger
        self.cuts = CutFinder(recorder)
        self.stale = StaleFinder(recorder)
        self.keepsakes = Keepsakes(recorder, self.stale)
        self.exposure: ExposureSensor | None = None
        self._hooked = 0
        self._running = _Running()
        self._user_anomaly = compat.is_anomaly()
        self._user_check_nan = compat.is_anomaly_check_nan()
        self._pending = 0
        self._asked: dict[Site, int] = {}
        self._last_backward: Site | None = None
        # The native part, where it names the lines of nodes while nothing special is going on.
        self._native: ModuleType | None = None

    # -- patches ------------------------------------------------------------------------------------

    def install(self) -> None:
        patches = self.recorder.patches
        self._format_stack = torch.fx.traceback.format_stack
        patches.set(torch.fx.traceback, "format_stack", self._recording())
        self._run_backward = torch.autograd._engine_run_backward
        patches.set(torch.autograd, "_engine_run_backward", self.run_backward)
        hooks = torch.autograd.graph.saved_tensors_hooks
        patches.set(hooks, "__enter__", self._entering(hooks.__enter__))
        patches.set(hooks, "__exit__", self._exiting(hooks.__exit__))
        patches.set(torch, "set_anomaly_enabled", self._set_user_anomaly)
        patches.set(torch, "is_anomaly_enabled", lambda: self._user_anomaly)
        patches.set(torch, "is_anomaly_check_nan_enabled", lambda: self._user_check_nan)
        self.cuts.install(patches)
        self._warned.listeners += [self._is_advice, self.cuts.heard]
        clock.when_threaded(self._switch)
        self.recorder.owners_changed = self._switch
        self.resume()

    def serve_natively(self, part: ModuleType) -> None:
        """Let the native part name the lines of nodes, if it can."""
        start = getattr(part, "start_nodes", None)
        if start is not None and get_ident() == clock.home and start(self._slow, Mark):
            self._native = part
            self.recorder.in_region = part.in_region
            self.recorder.spare_marks = part.spare_marks
            self._switch()

    def resume(self) -> None:
        self._switch()
        # Anomaly mode calls format_stack for each new node; that call, made cheap, is how we learn its line.
        # Not during backward, where it would print its own advice.
        on = self._user_anomaly or self._running.depth == 0
        compat.set_anomaly(on, self._user_anomaly and self._user_check_nan)

    def pause(self) -> None:
        if self._native is not None:
            self._native.nodes(False)
        compat.set_anomaly(self._user_anomaly, self._user_check_nan)

    def close(self) -> None:
        self.pause()
        self._native = None

    def snapshot_at_next_nodes(self, line: Site) -> None:
        """Ask for a look at exposed memory when the next nodes are made: several, while the line that asks is new."""
        seen = self._asked[line] = self._asked.get(line, -1) + 1
        self._pending = max(self._pending, LOOKS if worth_a_look(seen) else 1)
        self._switch()

    def _recording(self) -> Callable[[], list[str]]:
        """Two functions for one job: the fast one serves while nothing special is going on."""
        passing, home, met = self.recorder.state, clock.home, self.recorder.met
        plain: set[int] = set()
        # Lines that make nodes themselves, by instruction; each was met by this recorder.
        direct: dict[tuple[int, int], Site] = {}
        original = self._format_stack

        def fast() -> list[str]:
            try:
                frame = _getframe(1)
            except ValueError:
                return noted(None, [])
            if get_ident() != home:
                return slow(frame)
            code = frame.f_code
            at = (id(code), frame.f_lasti)
            site = direct.get(at)
            if site is not None:
                return site.mark
            # Code that has passed the questions below once need not answer them again.
            if id(code) not in plain:
                return slow(frame)
            region = passing.region
            site = site_of(frame) if region is None else region.site_at(frame)
            met[site] = None
            if region is None and at in _sites:
                direct[at] = site
            return site.mark

        def slow(frame: FrameType | None = None) -> list[str]:
            try:
                frame = frame or _getframe(1)
            except ValueError:
                # A thread of torch's own, below which there is no Python: a collective's, or one of RPC.
                return noted(None, [])
            asking = dict.get(frame.f_globals, "__name__")
            if type(asking) is str and asking.startswith("torch.fx"):
                return list(original())  # torch.fx itself asks for a stack, to print it
            plain.add(id(frame.f_code))
            region = self.recorder.region
            site = region.site_at(frame) if region is not None else site_of(frame)
            if self._pending:
                self._snapshot()
            if self._hooked or self.recorder.owners is not None:
                module = self.recorder.owners.path if self.recorder.owners is not None else ""
                site = site.marked(hooked=bool(self._hooked), module=module)
            met[site] = None
            if self._user_anomaly:
                return noted(site, original())
            if clock.threaded or get_ident() != clock.home:
                return noted(site, site.mark)
            return site.mark

        def noted(site: Site | None, stack: list[str]) -> list[str]:
            kept = _Noted(stack or [""])
            threaded = clock.threaded or get_ident() != clock.home
            kept.mark, kept.stamp = site.mark if site is not None else None, clock.stamp() if threaded else None
            return kept

        self._fast, self._slow = fast, slow
        return slow if self._special() else fast

    def _special(self) -> bool:
        special = self._pending or self._hooked or self._user_anomaly or clock.threaded
        return bool(special or self.recorder.owners is not None)

    def _switch(self) -> None:
        """Put the fast or the slow recording in place, as things stand."""
        if self.recorder.active and not self.recorder.paused:
            special = self._special()
            self.recorder.patches.replace(torch.fx.traceback, "format_stack", self._slow if special else self._fast)
            if self._native is not None:
                self._native.nodes(not special)

    @shield
    def _snapshot(self) -> None:
        if self.exposure is None:
            self._pending = 0
        else:
            self._pending = self._pending - 1 if self.exposure.small() else 0
            self.exposure.look()
        if not self._pending:
            self._switch()

    def _entering(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def __enter__(hooks: Any) -> Any:
            self._hooked += 1
            self._switch()
            return original(hooks)

        return __enter__

    def _exiting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __exit__(hooks: Any, *details: object) -> Any:
            self._hooked = max(0, self._hooked - 1)
            self._switch()
            return original(hooks, *details)

        return __exit__

    def _is_advice(self, message: Any, _frame: FrameType | None) -> bool:
        """The advice of an anomaly mode that only we switched on."""
        given = message.message
        return not self._user_anomaly and type(given) is UserWarning and str(given).startswith(ADVICE)

    def _set_user_anomaly(self, mode: bool, check_nan: bool = True) -> None:
        self._user_anomaly, self._user_check_nan = mode, check_nan
        self._switch()
        compat.set_anomaly(True, mode and check_nan)

    # -- backward -----------------------------------------------------------------------------------

    # Small programs make thousands of passes a second: what is done at each of them is done without a call where it
    # can be, and asks the interpreter for as little as it can.

    def run_backward(self, t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.recorder.watches():
            return self._run_backward(t_outputs, *args, **kwargs)
        frame = _getframe(1)
        site = site_of(frame)
        self._before_backward(t_outputs, frame, site)
        running, passing = self._running, self.recorder.state
        running.depth += 1
        outer = passing.site, passing.keeps_gradients
        passing.site, passing.keeps_gradients = site, len(args) > 3 and bool(args[3])
        first = clock.now()
        # Anomaly mode would print its own advice when the engine fails; ours comes instead. It is one switch for all
        # threads: where there are others, it stays on, since they may be building graphs meanwhile.
        if not clock.threaded and other_threads() == 0:
            compat.set_anomaly(self._user_anomaly, self._user_check_nan)
        try:
            return self._run_backward(t_outputs, *args, **kwargs)
        except RuntimeError as error:
            self._failed(t_outputs, error, frame)
            raise
        finally:
            running.depth -= 1
            self.ledger.passes.append((first, site))
            passing.site, passing.keeps_gradients = outer
            if self.recorder.watches():
                compat.set_anomaly(True, self._user_anomaly and self._user_check_nan)
            self._after_backward(site, first)

    def _before_backward(self, outputs: Any, frame: Any, site: Site) -> None:
        recorder = self.recorder
        held = compat_compile.hold()
        try:
            with torch._C.DisableTorchFunction():  # what we ask is not for the program's own modes to see
                roots = nodes.roots_of(outputs)
                for listener in recorder.before_backward:
                    listener(roots, frame)
                if recorder.aliases is not None:
                    recorder.aliases.before_backward(frame, site)
                if self.exposure is not None and self.exposure.foreign:
                    self.exposure.look()
                if self.ledger.suspicious():
                    self.stale.find_silent(roots, frame, self.exposure)
                self.keepsakes.look(roots, frame)
                if self.ledger.autocast:
                    self.stale.find_stale_casts(roots, frame)
                if self.cuts.sites:
                    self.cuts.constant_terms(roots, site)
        except Exception as error:
            recorder.give_up(error)
        finally:
            compat_compile.release(held)

    def _after_backward(self, site: Site, first: int) -> None:
        held = compat_compile.hold()
        try:
            with torch._C.DisableTorchFunction():
                now = clock.now()
                if now > first:
                    self.stale.made_by_backward.append((first, now, site))
                self._last_backward = site
                self.ledger.finish_backward()
                if self.exposure is not None and self.exposure.foreign:
                    self.snapshot_at_next_nodes(site)
                if self._running.depth == 0:
                    for callback in self.recorder.after_backward:
                        callback(self.ledger.backwards)
        except Exception as error:
            self.recorder.give_up(error)
        finally:
            compat_compile.release(held)

    @shield
    @untraced
    def _failed(self, outputs: Any, error: RuntimeError, frame: Any) -> None:
        text = text_of(error)
        if told_of(error) is not None:
            return
        roots = nodes.roots_of(outputs)
        if nodes.STALE in text:
            found = self.stale.explain(roots, text, frame)
        elif nodes.RELEASED in text:
            last = self._last_backward
            line = Line(last.place, last.library_place) if last is not None else None
            began = self.ledger.passes[-1][0] if self.ledger.passes else None
            found = explain_reuse(self.recorder, roots, frame, line, began)
        elif OVERLAP.search(text) and innermost_user_frame(error.__traceback__) is None:
            found = explain_overlap(self.recorder, roots, text, frame)
        elif NO_GRAPH in text:
            found = self.cuts.no_graph(frame)
        else:
            return
        error.__torchsan__ = found or True  # type: ignore[attr-defined]
