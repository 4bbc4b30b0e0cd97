"""forward reads Python state that it also writes.

## What it is
A counter, a cache, a flag, a list or a global that one call changes and the next call reads.

## What goes wrong
A capture has no Python: it keeps what the state was when it was made. A counter stands still, a cache
holds the example's table for ever. `torch.jit.trace` notices only when its own two runs differ;
`torch.export` says nothing.

## How to fix
Keep the state in a registered buffer and change it with torch operations (`self.steps.add_(1)`,
`torch.where(self.steps % 2 == 0, a, b)`), or pass it in and return it. Fill caches in `__init__`.

## When to ignore
When what is written is never read by a later call, as with an attribute kept for inspection: it is lost
in the capture, but the results are right (and torchsan says nothing).
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding, Place
from torchsan.model.capture_events import Fault, StateUse
from torchsan.rules import finding
from torchsan.rules._capture import help_text, level, notes, outcome, spans

CODE, NAME, LEVEL = "TS305", "python-state", "error"

BAD = """
import torch


class Alternate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1  # <- TS305
        return x if self.calls % 2 else -x


def make():
    return Alternate(), (torch.tensor([1.0, 2.0]),)
"""

GOOD = """
import torch


class Alternate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls.add_(1)
        return torch.where(self.calls % 2 == 1, x, -x)


def make():
    return Alternate(), (torch.tensor([1.0, 2.0]),)
"""


def _where(cause: StateUse) -> tuple[Place, Place | None]:
    """A counter is shown where it is written, a cache (changed inside) where it is last read."""
    read = cause.reads[-1] if cause.reads else None
    if cause.writes:
        return cause.writes[0], read
    assert read is not None
    return read, None


FIXES = (("cause", "without_memo"), ("cause", "scripted"), ("cause", "as_buffer"))


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, Fault):
        return None
    cause = event.cause
    if not isinstance(cause, StateUse) or not (cause.reads or cause.writes):
        return None
    place, read = _where(cause)
    found = spans(place, "changed by every call" if read else "used here; what it holds depends on earlier calls")
    if read is not None and read.line != place.line:
        found.append(read.span("needed", "read here"))
    return finding(
        globals(),
        f"forward reads and writes `{cause.name}`, which is not part of any capture: {outcome(event)}",
        found,
        level=level(event),
        why="a capture keeps what Python state was when it was made",
        notes=notes(event),
        fixes=help_text("keep the state in a registered buffer, or compute it in forward from tensors"),
    )
