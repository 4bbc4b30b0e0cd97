"""What the trainers' callbacks share: watch the first steps, tell what was found, step aside."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from torchsan.errors import UsageError
from torchsan.model import Finding, Report
from torchsan.report import render

if TYPE_CHECKING:
    from torchsan import watch


class FindingsError(RuntimeError):
    """Training was stopped because of findings, as `strict=True` asked."""


class FirstSteps:
    """Watches from the first step on, as one block, so that hazards across steps are seen.

    After `steps` steps, or when torch raises an error that a finding explains, the watch ends: everything is
    taken out of torch, and the rest of the training runs at its own speed.
    """

    def __init__(self, steps: int, *, strict: bool) -> None:
        if steps < 1:
            raise UsageError(f"steps must be 1 or more, not {steps}")
        self.steps = steps
        self.strict = strict
        self.report = Report()
        self._watch: watch | None = None
        self._left = steps
        self._told = 0

    def restart(self) -> None:
        """Training begins, maybe again: the last one may have ended with an error that nobody told us of."""
        self.finish()
        self._left = self.steps
        self._told = 0
        self.report = Report()

    def step_begins(self) -> None:
        if self._watch is None and self._left > 0:
            import torchsan

            self._watch = torchsan.watch(on_finding=self._met)
            self.report = self._watch.__enter__()

    def step_ended(self) -> None:
        if self._watch is None:
            return
        self._left -= 1
        if self._left <= 0 or (self.strict and self.report.alarms):
            self.finish()
        if self.strict and self.report.alarms:
            raise FindingsError("\n" + render(Report(findings=self.report.alarms)))

    def finish(self, error: BaseException | None = None) -> None:
        """End the watch and tell; an error that we can explain gets the explanation as its message."""
        if self._watch is None:
            return
        watch, self._watch, self._left = self._watch, None, 0
        watch.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        self._tell()

    def _met(self, finding: Finding) -> None:
        # Torch's own error is in flight and will most likely end the training, which not every trainer tells
        # its callbacks: say it now.
        if sys.exc_info()[1] is not None:
            self._tell()

    def _tell(self) -> None:
        new = [f for f in self.report.findings[self._told :] if f.certainty != "possible"]
        self._told = len(self.report.findings)
        if text := render(Report(findings=new)):
            print(text, end="", file=sys.stderr, flush=True)
