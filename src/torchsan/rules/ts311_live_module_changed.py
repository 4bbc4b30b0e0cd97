"""Capturing changed the live module.

## What it is
After `torch.jit.trace` or `torch.export`, parameters, buffers or attributes of the module that was
captured are not what they were.

## What goes wrong
Tracing runs forward several times: running statistics move. Exporting may run Python statements on the
real module (`self.k += 1` on a plain tensor), or leave fake tensors in attributes, which break the next
eager call. Whoever goes on training or evaluating the module has another one than before.

## How to fix
Capture a copy: `torch.jit.trace(copy.deepcopy(model), args)`; switch to `eval()` first. Register tensors
that forward changes as buffers.

## When to ignore
When the module is thrown away after the capture.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.capture_events import Fault, LiveChange
from torchsan.rules import finding
from torchsan.rules._capture import CALLS, help_text, listed, spans

CODE, NAME, LEVEL = "TS311", "live-module-changed", "warning"

BAD = """
import torch


class Mean(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, x):
        self.mean.mul_(0.5).add_(x.mean(0))  # <- TS311
        return x * 2


def make():
    return Mean(), (torch.tensor([[1.0, 2.0], [3.0, 5.0]]),)
"""

GOOD = """
import torch


class Mean(torch.nn.Module):
    def forward(self, x):
        return x * 2, x.mean(0)


def make():
    return Mean(), (torch.tensor([[1.0, 2.0], [3.0, 5.0]]),)
"""

FIXES = (("cause", "capture_copy"),)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, Fault):
        return None
    cause = event.cause
    if not isinstance(cause, LiveChange) or cause.place is None:
        return None
    methods = listed([CALLS.get(v.method, v.method) for v in event.verdicts])
    return finding(
        globals(),
        f"capturing with {methods} changes the module itself: `{cause.target}` {cause.change}",
        spans(cause.place, "changed here"),
        why="capturing runs forward on the module that it is given",
        notes=() if cause.by_program else ("torchsan captured a copy; your module is as it was",),
        fixes=help_text("capture a copy: copy.deepcopy(model)"),
    )
