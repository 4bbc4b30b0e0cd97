"""The public face of the recorder: `watch`, `heal`, `freeze`, `thaw`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from torchsan.model import Finding, Report
from torchsan.observe.clock import clock
from torchsan.observe.freezing import freeze, thaw
from torchsan.observe.healing import heal
from torchsan.observe.objects import told_of
from torchsan.observe.recorder import Recorder
from torchsan.report import Options, render

F = TypeVar("F", bound=Callable[..., Any])

_current: Recorder | None = None
# How many blocks the current recorder serves: those of several threads overlap, and the last one out stops it.
_blocks = 0
_lock = threading.Lock()


class watch:
    """Watch a block, or every call of a function.

        with torchsan.watch() as report:
            train()

    An exception that torchsan can explain keeps its type and gets the explanation as its message. Findings
    that raise nothing are in `report.findings`.
    """

    def __init__(self, *, on_finding: Callable[[Finding], None] | None = None) -> None:
        self._on_finding = on_finding
        self._recorder: Recorder | None = None
        self.report = Report()

    def __enter__(self) -> Report:
        global _current, _blocks
        with _lock:
            if _current is not None and _current.active:
                # Watched already: that recorder goes on, its report serves both.
                self.report = _current.report
            else:
                _current = Recorder(self.report, on_finding=self._on_finding)
                _current.start()
                _blocks = 0
            _blocks += 1
            self._recorder = _current
        return self.report

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _current, _blocks
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        with _lock:
            last = recorder is not _current or _blocks == 1
            if recorder is _current:
                _blocks -= 1
                _current = None if last else _current
        # An inner block of the same thread leaves an error to the outer one.
        if error is not None and (last or threading.get_ident() != clock.home):
            with recorder.shielded():
                recorder.explain(error)
                _put_into_message(error)
        if last:
            recorder.stop()

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with watch(on_finding=self._on_finding):
                return function(*args, **kwargs)

        return watched  # type: ignore[return-value]


def _put_into_message(error: BaseException) -> None:
    findings = told_of(error)
    if type(findings) is not list or not findings:
        return
    text = render(Report(findings=findings), "full", Options())
    error.args = (f"{text.rstrip()}\n\ntorch's own words: {error}",)


def current() -> Recorder | None:
    return _current


__all__ = ["freeze", "heal", "thaw", "watch"]
