"""The capture keeps the mode, train or eval, in which it was made.

## What it is
A model is captured in training mode and something in it depends on the mode: Dropout, BatchNorm, an
`if self.training`.

## What goes wrong
A trace has no modes: `captured.eval()` returns without a word and changes nothing. Dropout goes on dropping,
BatchNorm goes on using the statistics of the batch (and moving its own) in production. An exported module
refuses `eval()`; ONNX has no such call. Tracing in training mode also runs forward several times, which moves
BatchNorm's statistics in the model itself.

## How to fix
Call `model.eval()` before the capture; capture once more in the other mode if both are needed.
`torch.jit.script` keeps the flag and follows `train()` and `eval()`.

## When to ignore
When the capture is meant for training and is never used for anything else.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.capture_events import Departure, Fault, ModeUse
from torchsan.rules import finding
from torchsan.rules._capture import help_text, level, notes, outcome

CODE, NAME, LEVEL = "TS313", "mode-frozen", "error"

BAD = """
import torch


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(x) * 2  # <- TS313


def make():
    return Head(), (torch.tensor([[1.0, 2.0], [3.0, 5.0]]),)
"""

GOOD = """
import torch


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(x) * 2


def make():
    return Head().eval(), (torch.tensor([[1.0, 2.0], [3.0, 5.0]]),)
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, Fault) or event.column != "mode":
        return None
    cause = event.cause
    if not isinstance(cause, ModeUse | Departure):
        return None
    mode, other = ("train", "eval") if not isinstance(cause, ModeUse) or cause.training else ("eval", "train")
    label = "does something else in eval mode"
    if isinstance(cause, ModeUse):
        label = f"{cause.layers[0]} does something else in {other} mode" if cause.layers else label
    where = cause.place.span("cause", label, primary=True)
    spans = [where]
    if isinstance(cause, ModeUse):
        if cause.capture is not None:
            where = cause.place.span("cause", label)
            spans = [cause.capture.span("origin", f"captured in {mode} mode", primary=True), where]
        spans += [place.span("aliased", "so does this") for place in cause.others]
    return finding(
        globals(),
        f"the capture keeps {mode} mode, in which it was made, whatever {other}() says: {outcome(event)}",
        spans,
        level=level(event),
        why="the mode is a Python flag: a capture holds only what it was when it was made",
        notes=notes(event),
        fixes=help_text(f"call model.{other}() before the capture"),
    )
