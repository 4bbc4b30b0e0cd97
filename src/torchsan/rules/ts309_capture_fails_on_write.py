"""A capture fails on a line that writes in place.

## What it is
The model runs in eager mode, and a capture dies on a line that fills, assigns or writes a tensor.

## What goes wrong
The tracer of TorchScript breaks on some writes with an internal assertion (`torch.fill` of an
uninitialised tensor, `narrow(...).fill_(True)`), and exporters refuse writes that they cannot express,
such as storing through `.data`. The message does not say which of your lines it was.

## How to fix
Compute the value instead of writing it: `torch.zeros_like(a)`, `torch.full_like(a, v)`, `masked_fill`,
`torch.where`, `index_put`. Or take a capture that works; the report names them.

## When to ignore
When another capture serves you.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.capture_events import FailedWrite, Fault
from torchsan.rules import finding
from torchsan.rules._capture import help_text, level, notes, outcome, spans

CODE, NAME, LEVEL = "TS309", "capture-fails-on-write", "warning"

BAD = """
import torch


class Zero(torch.nn.Module):
    def forward(self, x):
        blank = torch.fill(torch.empty_like(x), 0)  # <- TS309
        return x + blank


def make():
    return Zero(), (torch.tensor([1.0, 2.0]),)
"""

GOOD = """
import torch


class Zero(torch.nn.Module):
    def forward(self, x):
        blank = torch.zeros_like(x)
        return x + blank


def make():
    return Zero(), (torch.tensor([1.0, 2.0]),)
"""

FIXES = (
    ("cause", "filled"),
    ("cause", "out_of_place"),
    ("cause", "into_memory"),
    ("cause", "clone_before_write"),
    ("cause", "scripted"),
)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, Fault):
        return None
    cause = event.cause
    if not isinstance(cause, FailedWrite):
        return None
    return finding(
        globals(),
        f"`{cause.text}` runs in eager mode, but {outcome(event)}",
        spans(cause.place, "the capture dies here"),
        level=level(event),
        why="not every write in place can be expressed in a graph",
        notes=notes(event),
        fixes=help_text("compute a new tensor instead of writing (zeros_like, full_like, where, masked_fill)"),
    )
