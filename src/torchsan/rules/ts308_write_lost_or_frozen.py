"""A write to an input, parameter or buffer is lost in the capture, or kept where it was not meant.

## What it is
forward changes its argument, a parameter or a buffer in place (or through `.data`), and the capture does
not do the same.

## What goes wrong
The caller's tensor, or the running statistics, are not what the model would have left. Graphs made for
ONNX have no writes at all; `.data` stores vanish from traces.

## How to fix
Compute a new tensor and return it. For running state use a registered buffer and an in-place torch
operation, and take `torch.export`, which keeps such writes.

## When to ignore
When nobody reads the changed tensor afterwards.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.capture_events import Fault, TensorWrite
from torchsan.rules import finding
from torchsan.rules._capture import help_text, level, notes, outcome, spans

CODE, NAME, LEVEL = "TS308", "write-lost-or-frozen", "error"

BAD = """
import torch


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(2))

    def forward(self, x):
        self.last.data = x * 2  # <- TS308
        return x + 1


def make():
    return Scale(), (torch.tensor([1.0, 2.0]),)
"""

GOOD = """
import torch


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(2))

    def forward(self, x):
        self.last.copy_(x * 2)
        return x + 1


def make():
    return Scale(), (torch.tensor([1.0, 2.0]),)
"""

FIXES = (("cause", "into_memory"), ("cause", "out_of_place"), ("cause", "clone_before_write"), ("cause", "scripted"))


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, Fault):
        return None
    cause = event.cause
    if not isinstance(cause, TensorWrite) or cause.place is None:
        return None
    return finding(
        globals(),
        f"forward changes {cause.target}, and the capture does not do the same: {outcome(event)}",
        spans(cause.place, "written here"),
        level=level(event),
        why="a capture keeps only the writes that it can express",
        notes=notes(event),
        fixes=help_text("compute a new tensor and return it"),
    )
