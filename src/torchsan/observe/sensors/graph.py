"""Watches autograd itself: the line of every node, and each backward pass before and after it runs."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.graph
import torch.fx.traceback

from torchsan import compat
from torchsan.model.events import GraphReused, Line, Memory, Save, StaleCast, StaleSave, Write
from torchsan.observe import nodes
from torchsan.observe.cuts import CutFinder
from torchsan.observe.ledger import Stepped, Written
from torchsan.observe.names import in_modules, in_variables, variables
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.refusals import whole_statement, written_name
from torchsan.observe.sites import Site, _sites, site_of, user_frames
from torchsan.observe.tensors import byte_range, memory_of

if TYPE_CHECKING:
    from torchsan.observe.sensors.exposure import ExposureSensor

_getframe = sys._getframe
# How many nodes after an exposure, or after a backward, are taken for ones that may save exposed memory.
LOOKS = 16
NO_GRAPH = "does not require grad and does not have a grad_fn"


class _UserStack(list[str]):
    """What anomaly mode asked for by the user records, with our site beside it."""

    site: Site


class GraphSensor:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.ledger = recorder.ledger
        self.cuts = CutFinder(recorder)
        self.exposure: ExposureSensor | None = None
        self._hooked = 0
        self._depth = 0
        self._user_anomaly = compat.is_anomaly()
        self._user_check_nan = compat.is_anomaly_check_nan()
        self._pending = 0
        self._last_backward: Line | None = None
        # Nodes made by backwards with create_graph: their numbers, and the line of the call.
        self._inside: deque[tuple[int, int, Site]] = deque(maxlen=256)

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
        self.resume()

    def resume(self) -> None:
        # Anomaly mode calls format_stack for each new node; that call, made cheap, is how we learn its line.
        compat.set_anomaly(True, self._user_anomaly and self._user_check_nan)

    def pause(self) -> None:
        compat.set_anomaly(self._user_anomaly, self._user_check_nan)

    def close(self) -> None:
        self.pause()

    def snapshot_at_next_node(self) -> None:
        """Ask for a look at exposed memory when the next nodes are made."""
        self._pending = LOOKS
        self._switch()

    def _recording(self) -> Callable[[], list[str]]:
        """Two functions for one job: the fast one serves while nothing special is going on."""
        sites = _sites
        original = self._format_stack

        def fast() -> list[str]:
            frame = _getframe(1)
            site = sites.get((id(frame.f_code), frame.f_lasti))
            return site if site is not None else slow(frame)

        def slow(frame: FrameType | None = None) -> list[str]:
            frame = frame or _getframe(1)
            if frame.f_globals.get("__name__", "").startswith("torch.fx"):
                return list(original())  # torch.fx itself asks for a stack, to print it
            site = site_of(frame)
            if self._pending:
                self._snapshot()
            if self._hooked:
                return site.marked_hooked()
            if self._user_anomaly:
                stack = _UserStack(original())
                stack.site = site
                return stack
            return site

        self._fast, self._slow = fast, slow
        return slow if self._special() else fast

    def _special(self) -> bool:
        return bool(self._pending or self._hooked or self._user_anomaly)

    def _switch(self) -> None:
        """Put the fast or the slow recording in place, as things stand."""
        if self.recorder.active and not self.recorder.paused:
            wanted = self._slow if self._special() else self._fast
            self.recorder.patches.replace(torch.fx.traceback, "format_stack", wanted)

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

    def _set_user_anomaly(self, mode: bool, check_nan: bool = True) -> None:
        self._user_anomaly, self._user_check_nan = mode, check_nan
        self._switch()
        compat.set_anomaly(True, mode and check_nan)

    # -- backward -----------------------------------------------------------------------------------

    def run_backward(self, t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.recorder.active or self.recorder.paused:
            return self._run_backward(t_outputs, *args, **kwargs)
        frame = _getframe(1)
        self._before_backward(t_outputs, frame)
        self._depth += 1
        outer, self.recorder.backward = self.recorder.backward, site_of(frame)
        first = compat.next_sequence()
        # Anomaly mode would print its own advice when the engine fails; ours comes instead.
        compat.set_anomaly(self._user_anomaly, self._user_check_nan)
        try:
            return self._run_backward(t_outputs, *args, **kwargs)
        except RuntimeError as error:
            self._failed(t_outputs, error, frame)
            raise
        finally:
            self._depth -= 1
            self.recorder.backward = outer
            if self.recorder.active and not self.recorder.paused:
                compat.set_anomaly(True, self._user_anomaly and self._user_check_nan)
            self._after_backward(frame, first)

    @shield
    def _before_backward(self, outputs: Any, frame: Any) -> None:
        roots = _roots(outputs)
        for listener in self.recorder.before_backward:
            listener(roots, frame)
        if self.exposure is not None and self.exposure.has_foreign():
            self.exposure.look()
        if self.ledger.suspicious():
            self._find_silent(roots, frame)
        if any(step.autocast for step in self.ledger.steps):
            self._find_stale_casts(roots, frame)
        self.cuts.constant_terms(roots, site_of(frame))

    @shield
    def _after_backward(self, frame: Any, first: int) -> None:
        site = site_of(frame)
        if compat.next_sequence() > first:
            self._inside.append((first, compat.next_sequence(), site))
        self._last_backward = Line(site.place, site.library_place)
        self.ledger.finish_backward()
        if self.exposure is not None and self.exposure.has_foreign():
            self.snapshot_at_next_node()
        if self._depth == 0:
            for callback in self.recorder.after_backward:
                callback(self.ledger.backwards)

    @shield
    def _failed(self, outputs: Any, error: RuntimeError, frame: Any) -> None:
        text = str(error)
        if getattr(error, "__torchsan__", None) is not None:
            return
        if nodes.STALE in text:
            error.__torchsan__ = self._explain_stale(_roots(outputs), text, frame) or True  # type: ignore[attr-defined]
        elif nodes.RELEASED in text:
            error.__torchsan__ = self._explain_reuse(_roots(outputs), frame) or True  # type: ignore[attr-defined]
        elif NO_GRAPH in text:
            error.__torchsan__ = self.cuts.no_graph(frame) or True  # type: ignore[attr-defined]

    # -- loud: torch's version check failed ---------------------------------------------------------

    def _explain_stale(self, roots: list[Any], text: str, frame: Any) -> list[Any]:
        stale = [s for node in nodes.walk(roots) for s in nodes.saved_values(node) if s.stale]
        # The engine goes from the latest node back, so the failing one is the latest that it reached.
        stale.sort(key=lambda s: (s.message.split(" Hint:")[0] not in text, -nodes.sequence(s.node)))
        if not stale:
            return []
        found = []
        told: set[object] = set()
        events = [self._stale_event(saved, frame) for saved in stale]
        known = [event for event in events if event.write.line is not None]
        for event in known or events[:1]:
            cause = (event.write.line and event.write.line.place, event.write.op, event.write.line is None)
            if cause in told:
                continue
            told.add(cause)
            found.extend(self.recorder.emit(event))
        return found

    def _stale_event(self, saved: nodes.Saved, frame: Any) -> StaleSave:
        tensor = nodes.tensor_behind(saved)
        memory = memory_of(tensor) if tensor is not None else None
        sequence = nodes.sequence(saved.node)
        writes: list[Written] = []
        steps: list[Stepped] = []
        if memory is not None:
            writes = self.ledger.after(memory, sequence, saved.expected)
            steps = list(self.ledger.steps_after(memory, sequence))
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

    def _describe(self, saved: nodes.Saved) -> Save:
        save = nodes.describe_save(saved)
        if save.line is None:
            number = nodes.sequence(saved.node)
            site = next((s for start, end, s in self._inside if start <= number < end), None)
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

    def _find_silent(self, roots: list[Any], frame: Any) -> None:
        for node in nodes.walk(roots):
            sequence = nodes.sequence(node)
            if sequence < 0 or sequence > 1 << 62:
                continue
            for saved in nodes.saved_values(node):
                if saved.stale or saved.tensor is None or _never_read(saved):
                    continue
                memory = memory_of(saved.tensor)
                if memory is None:
                    continue
                writes = self._silent_writes(memory, sequence, saved.tensor)
                steps = list(self.ledger.steps_after(memory, sequence, silent_only=True))
                if writes or steps:
                    self._tell_silent(saved, memory, writes, steps, frame)

    def _silent_writes(self, memory: int, sequence: int, tensor: torch.Tensor) -> list[Written]:
        start, end = byte_range(tensor)
        return [
            write
            for write, _ in self.ledger.silent.get(memory, [])
            if write.before > sequence and write.start < end and start < write.end
        ]

    def _tell_silent(
        self, saved: nodes.Saved, memory: int, writes: list[Written], steps: list[Stepped], frame: Any
    ) -> None:
        write, more, maker = self._choose(writes, steps)
        needed = site_of(frame)
        exposed = self.exposure.exposed_at(memory) if self.exposure is not None else None
        self.recorder.emit(
            StaleSave(
                memory=self._name(memory, frame, write, saved.tensor),
                save=self._describe(saved),
                write=write,
                needed=Line(needed.place, needed.library_place),
                silent=True,
                more_writes=more,
                constructor=maker.place if maker is not None else None,
                exposed=exposed,
            )
        )

    # -- autocast's copies --------------------------------------------------------------------------

    def _find_stale_casts(self, roots: list[Any], frame: Any) -> None:
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

    # -- a graph used twice -------------------------------------------------------------------------

    def _explain_reuse(self, roots: list[Any], frame: Any) -> list[Any]:
        """Find the edge from the new graph into the one that is gone."""
        for node in nodes.walk(roots):
            if nodes.is_released(node):
                continue
            for parent, _ in node.next_functions:
                if parent is not None and nodes.is_released(parent):
                    return self._tell_reuse(parent, frame)
        released = [node for node in nodes.walk(roots) if nodes.is_released(node)]
        return self._tell_reuse(released[0], frame) if released else []

    def _tell_reuse(self, node: Any, frame: Any) -> list[Any]:
        frames = user_frames(frame)
        carried = next((n for n, v in variables(frames) if isinstance(v, torch.Tensor) and v.grad_fn is node), None)
        site = site_of(frame)
        return self.recorder.emit(
            GraphReused(
                op=nodes.op_name(node),
                line=nodes.line_of_node(node),
                needed=Line(site.place, site.library_place),
                first=self._last_backward,
                carried=Memory(carried) if carried else None,
            )
        )


def described(write: Written) -> Write:
    line = Line(whole_statement(write.site.place), write.site.library_place)
    return Write(write.op, write.kind, line, write.version)


def described_step(step: Stepped) -> Write:
    return Write(step.name, "optimizer", Line(step.site.place, None))


def _roots(outputs: Any) -> list[Any]:
    found = []
    for output in outputs:
        if isinstance(output, torch.Tensor):
            found.append(output.grad_fn)
        else:
            found.append(getattr(output, "node", None))  # GradientEdge
    return [root for root in found if root is not None]


def _never_read(saved: nodes.Saved) -> bool:
    """Batch norm saves its running statistics in training, too, and does not look at them then."""
    return saved.what.startswith("running_") and bool(getattr(saved.node, "_saved_training", False))
