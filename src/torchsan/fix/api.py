"""`torchsan.fix(function, *args)`: the same search for a live function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchsan.fix import files
from torchsan.fix.engine import Engine
from torchsan.fix.outcome import Outcome
from torchsan.model import Report
from torchsan.report import Options, render

STEPS = 30


@dataclass(frozen=True, slots=True)
class Mended:
    """What was found and what mends it. Nothing is written before `apply()`."""

    report: Report
    outcome: Outcome

    @property
    def diff(self) -> str:
        return self.outcome.diff

    @property
    def verified(self) -> bool:
        """True when there was something to mend and the edited function was seen to run right."""
        return bool(self.outcome.changed) and self.outcome.clean

    @property
    def proof(self) -> list[dict[str, Any]]:
        return [fix.proof for finding in self.report.findings for fix in finding.fixes if fix.proof]

    def apply(self) -> None:
        """Write the edits to the files; the functions that are loaded stay as they are."""
        files.write((self.outcome.files[path], source) for path, source in self.outcome.changed.items())

    def __str__(self) -> str:
        return render(self.report, "full", Options())


def fix(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Mended:
    """Find the smallest edit that makes `function(*args, **kwargs)` right, and prove it by running.

    The function, or module, is run several times on copies of its arguments, with the same random numbers each
    time. When it returns a tensor and calls no backward itself, the sum of the tensor is differentiated.
    """
    from torchsan.fix.live import Live

    outcome = Engine(Live(function, args, kwargs, STEPS)).run()
    report = Report(command=["fix"], findings=outcome.findings())
    report.extra = {"runs": outcome.runs}
    return Mended(report, outcome)
