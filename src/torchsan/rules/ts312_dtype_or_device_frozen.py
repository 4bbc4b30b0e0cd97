"""A dtype or device of the example is frozen into the capture.

## What it is
`torch.zeros(n, dtype=x.dtype, device=x.device)` and the like: a new tensor takes its dtype and device
from an input.

## What goes wrong
A trace keeps both as literals. When the traced model is converted (`.double()`, `.half()`, `.cuda()`), it
mixes types or devices and fails, or computes in the wrong precision. No warning is given.

## How to fix
Derive the tensor from the input: `x.new_zeros(n)`, `torch.zeros_like(x)`, which follow it in a trace too.

## When to ignore
When the capture is used with the example's dtype and device only.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.capture_events import Constant, Fault
from torchsan.rules import finding
from torchsan.rules._capture import help_text, level, notes, outcome, spans

CODE, NAME, LEVEL = "TS312", "dtype-or-device-frozen", "warning"

BAD = """
import torch


class Cell(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(2, 2)

    def forward(self, x):
        state = torch.zeros(x.size(0), 2, dtype=x.dtype)  # <- TS312
        return self.mix(state) + self.mix(x)


def make():
    return Cell(), (torch.ones(3, 2),)
"""

GOOD = """
import torch


class Cell(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(2, 2)

    def forward(self, x):
        state = x.new_zeros(x.size(0), 2)
        return self.mix(state) + self.mix(x)


def make():
    return Cell(), (torch.ones(3, 2),)
"""

FIXES = (("cause", "like_input"),)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, Fault):
        return None
    cause = event.cause
    if not isinstance(cause, Constant):
        return None
    label = f"{cause.before} in the capture, {cause.after} in the model"
    return finding(
        globals(),
        f"`{cause.text}` keeps the example's dtype and device: {outcome(event)}",
        spans(cause.place, label),
        level=level(event),
        why="a trace holds dtype and device as literals",
        notes=notes(event),
        fixes=help_text("derive the tensor from the input: x.new_zeros(…), torch.zeros_like(x)"),
    )
