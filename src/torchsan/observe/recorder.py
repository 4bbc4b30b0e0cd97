"""The recorder: installs the sensors, takes their events to the rules, keeps the report.

Nothing here may hurt the program under watch: a sensor that fails is reported once and everything is
taken out; a rule that fails is left out from then on.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import traceback
from _thread import get_ident
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Protocol

import torch

from torchsan.model import Finding, Place, Report
from torchsan.model.events import Event
from torchsan.model.memory_events import MemoryEvent
from torchsan.model.parallel_events import ParallelEvent
from torchsan.observe.clock import clock
from torchsan.observe.ledger import Ledger
from torchsan.observe.patches import Patches
from torchsan.observe.sites import Site
from torchsan.observe.steps import StepHooks
from torchsan.rules import Rule, all_rules

if TYPE_CHECKING:
    from torchsan.observe.sensors.aliases import AliasWatch
    from torchsan.processes.journal import Journal


class Sensor(Protocol):
    """Watches one side of torch. `install` only registers patches on the recorder."""

    def install(self) -> None: ...

    def close(self) -> None: ...


class _Passing(threading.local):
    site: Site | None = None
    keeps_gradients = False
    region: Any = None
    # The line that called it, once it is known.
    called: Site | None = None


class Recorder:
    """What is known about the run so far."""

    def __init__(
        self,
        report: Report | None = None,
        *,
        on_finding: Callable[[Finding], None] | None = None,
        at_write: bool = False,
        judging: bool = True,
        timeline: bool = False,
        memory: bool = False,
        eager: bool = False,
    ) -> None:
        self.report = report if report is not None else Report()
        self.report.torch = torch.__version__
        self.ledger = Ledger()
        self.patches = Patches()
        self.on_finding = on_finding
        # Names of written memory by the place of the write, where only a live frame could tell them.
        self.names: dict[Place, str] = {}
        self.at_write = at_write
        # Without judging only the writes are watched, for `freeze` and `heal`.
        self.judging = judging
        self.active = False
        # Code of the program that no import will show us: its main script.
        self.codes: list[CodeType] = []
        self.after_backward: list[Callable[[int], None]] = []
        self.on_save: list[Callable[[], None]] = []  # called at each `torch.save`
        self.steps = StepHooks(self.give_up, self.watches)
        # Whether the story of each memory is kept for the HTML page, and the ears that this takes.
        self.timeline = timeline
        # Whether what is kept for backward is measured, and who then knows which module is running.
        self.memory = memory
        self.owners: Any = None
        # To be called when that has changed; set by the sensor of graphs.
        self.owners_changed: Callable[[], None] = lambda: None
        # Nodes of all graphs that were alive at each step.
        self.live_nodes: deque[int] = deque(maxlen=4_096)
        # References to marks (by address) that no node holds.
        self.spare_marks: Callable[[], dict[int, int]] = dict
        # Whether what the program compiles runs as plain Python instead.
        self.eager = eager
        self.before_backward: list[Callable[[list[Any], FrameType], None]] = []
        # Who wants to know once the program begins to speak to other ranks.
        self.when_parallel: list[Callable[[], None]] = []
        self.heard: list[Callable[[Event | MemoryEvent | ParallelEvent, Finding], None]] = []
        # Who looks for other holders of written memory; set by the sensor of writes.
        self.aliases: AliasWatch | None = None
        # What is going on in each thread; the sensor of graphs tells which backward runs.
        self.state = _Passing()
        # Told when the thread that began to watch enters or leaves a compiled region.
        self.in_region: Callable[[bool], None] = lambda inside: None
        # The lines that have made nodes while this recorder watched.
        self.met: dict[Site, None] = {}
        # Memory that sums of the program's own went into since the last step: how many elements each.
        self.reduced: dict[int, int] = {}
        # How many collectives this rank has made in each group.
        self.calls: dict[str, int] = {}
        # Where the process writes what ranks are compared by; None outside of `torchsan run`.
        self.journal: Journal | None = None
        self._asleep = 0
        self._broken_rules: set[str] = set()
        self._rules = [rule for rule in all_rules().values() if rule.judge is not None]
        self._sensors: list[Sensor] = []

    # -- life ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self.active = True
        clock.start()
        with self.shielded():
            self._install()

    def _install(self) -> None:
        from torchsan.observe.sensors import make_sensors

        self._sensors = make_sensors(self)
        for sensor in self._sensors:
            sensor.install()
        if self.at_write:
            from torchsan.observe.healing import AtWrite

            self._at_write = AtWrite(self)
            self._at_write.start()

    def stop(self) -> None:
        if not self.active:
            return
        if self.at_write:
            self._at_write.stop()
        for sensor in reversed(self._sensors):
            with self.shielded():
                sensor.close()
        self.active = False
        self.patches.remove()
        clock.stop()

    def user_code(self, code: CodeType) -> None:
        self.codes.append(code)

    def stop_after(self, passes: int, stop: type[BaseException]) -> None:
        """Raise `stop` in the program once it has made so many backward passes."""

        def count(backwards: int) -> None:
            if backwards >= passes:
                raise stop

        self.after_backward.append(count)

    def explain(self, error: BaseException) -> None:
        """Find the hazard behind an exception that ended the program, if no sensor has yet."""
        from torchsan.observe.compiled.failures import explain_compiling
        from torchsan.observe.refusals import explain_uncaught

        with self.shielded():
            if not explain_compiling(self, error):
                explain_uncaught(self, error)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the patches out while something that looks at torch's own functions runs."""
        self.step_aside()
        try:
            yield
        finally:
            self.step_back()

    def step_aside(self) -> None:
        self._asleep += 1
        if self._asleep == 1 and self.active:
            self.patches.remove()
            for sensor in self._sensors:
                getattr(sensor, "pause", lambda: None)()

    def step_back(self) -> None:
        self._asleep = max(0, self._asleep - 1)
        if self._asleep == 0 and self.active:
            self.patches.apply()
            for sensor in self._sensors:
                getattr(sensor, "resume", lambda: None)()

    @property
    def asleep(self) -> bool:
        """Are the patches out?"""
        return self._asleep > 0

    @property
    def region(self) -> Any:
        """The compiled region that is running in this thread: what torch does in it is not the user's, op by op."""
        return self.state.region

    @region.setter
    def region(self, region: Any) -> None:
        self.state.region, self.state.called = region, None
        if get_ident() == clock.home:
            self.in_region(region is not None)

    @property
    def paused(self) -> bool:
        """Is what happens now none of the user's doing?"""
        return self._asleep > 0 or self.state.region is not None

    def watches(self) -> bool:
        """Is what happens now to be noted?"""
        return self.active and not self._asleep and self.state.region is None

    @property
    def backward(self) -> Site | None:
        """The backward that is running in this thread, told by its line; None outside of backward."""
        return self.state.site

    @property
    def backward_keeps_gradients(self) -> bool:
        return self.state.keeps_gradients

    def parallel(self) -> None:
        """The program speaks to other ranks, or is about to: from now on it is followed how it does."""
        listeners, self.when_parallel = self.when_parallel, []
        for listener in listeners:
            listener()

    # -- events -------------------------------------------------------------------------------------

    def emit(self, event: Event | MemoryEvent | ParallelEvent) -> list[Finding]:
        """Let every rule judge an event; keep what they find."""
        found = []
        for rule in self._rules:
            finding = self._judge(rule, event)
            if finding is not None:
                found.append(finding)
                new = self.report.add(finding)
                for listener in self.heard:
                    listener(event, finding)
                if new and self.on_finding is not None:
                    self.on_finding(finding)
        return found

    def keep(self, finding: Finding) -> None:
        """Take a finding that was judged elsewhere into the report."""
        if self.report.add(finding) and self.on_finding is not None:
            self.on_finding(finding)

    def _judge(self, rule: Rule, event: Event | MemoryEvent | ParallelEvent) -> Finding | None:
        if rule.judge is None or rule.code in self._broken_rules:
            return None
        try:
            return rule.judge(event, self.report)
        except Exception as error:
            self._broken_rules.add(rule.code)
            self.report.notes.append(f"internal error: rule {rule.code} failed and was left out ({_brief(error)})")
            return None

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Our own mistakes end here: they are told, and the recorder steps aside."""
        try:
            yield
        except Exception as error:
            self.give_up(error)

    def give_up(self, error: BaseException) -> None:
        if os.environ.get("TORCHSAN_DEBUG"):
            traceback.print_exception(error, file=sys.stderr)
        self.report.notes.append(f"internal error: the recorder stepped aside ({_brief(error)})")
        # In the summary, and so in every format: what happened from here on was not watched.
        self.report.extra.setdefault("stepped_aside", _brief(error))
        if self.active:
            self.active = False
            self.patches.remove()
            clock.stop()
            for sensor in self._sensors:
                try:
                    sensor.close()
                except Exception:
                    continue


def _brief(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1:] or None
    where = f" at {os.path.basename(last[0].filename)}:{last[0].lineno}" if last else ""
    try:
        text = str(error)
    except Exception:
        text = "no message"
    return f"{type(error).__name__}: {text}{where}"


def shield(method: Callable[..., Any]) -> Callable[..., Any]:
    """For sensors' methods: an error inside makes the recorder step aside, never the program fail.

    What is asked of tensors inside is not for the program's own modes and subclasses to see.
    """

    @functools.wraps(method)
    def shielded(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            with torch._C.DisableTorchFunction():
                return method(self, *args, **kwargs)
        except Exception as error:
            self.recorder.give_up(error)
            return None

    return shielded
