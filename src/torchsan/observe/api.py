"""The public face of the recorder: `watch`, `heal`, `freeze`, `thaw`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from torchsan.model import Finding, Report
from torchsan.observe.freezing import freeze, thaw
from torchsan.observe.healing import heal
from torchsan.observe.objects import told_of
from torchsan.observe.recorder import Recorder
from torchsan.report import Options, render

F = TypeVar("F", bound=Callable[..., Any])

_current: Recorder | None = None


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
        global _current
        if _current is not None:
            # Watched already: the outer block goes on recording, its report serves both.
            self.report = _current.report
            return self.report
        self._recorder = _current = Recorder(self.report, on_finding=self._on_finding)
        self._recorder.start()
        return self.report

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _current
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        _current = None
        if error is not None:
            with recorder.shielded():
                recorder.explain(error)
                _put_into_message(error)
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
