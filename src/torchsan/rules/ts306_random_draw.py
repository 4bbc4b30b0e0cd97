"""A random draw is frozen.

## What it is
Random numbers from Python's `random` or from NumPy in forward, or a branch on a random tensor.

## What goes wrong
The numbers drawn while capturing become constants: every later call uses the same noise, the same
dropped layer, the same augmentation.

## How to fix
Draw with torch (`torch.rand`, `torch.randn_like`), which captures replay as an operation, and choose with
`torch.where` rather than `if`. Switch the model to `eval()` when the randomness is for training only.

## When to ignore
Never silently: a model that needs the draw in use is wrong without it.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding, Place
from torchsan.model.capture_events import Draw, Fault, ReadOut
from torchsan.rules import finding
from torchsan.rules._capture import help_text, level, notes, outcome, spans

CODE, NAME, LEVEL = "TS306", "random-draw", "error"

BAD = """
import random

import torch


class Noise(torch.nn.Module):
    def forward(self, x):
        return x * random.random()  # <- TS306


def make():
    return Noise(), (torch.tensor([1.0, 2.0]),)
"""

GOOD = """
import torch


class Noise(torch.nn.Module):
    def forward(self, x):
        return x * torch.rand(())


def make():
    return Noise(), (torch.tensor([1.0, 2.0]),)
"""

FIXES = (("cause", "drawn_by_torch"), ("cause", "in_eval_mode"))


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, Fault):
        return None
    cause = event.cause
    callers: tuple[Place, ...] = ()
    if isinstance(cause, Draw):
        what, label = f"`{cause.text}` draws from {cause.source}", "drawn here"
    elif isinstance(cause, ReadOut) and event.column == "seed":
        what, label, callers = (
            f"`{cause.text}` reads out a random tensor",
            "another value with another seed",
            cause.callers,
        )
    else:
        return None
    return finding(
        globals(),
        f"{what}: {outcome(event)}",
        spans(cause.place, label, callers),
        level=level(event),
        why="the numbers drawn while capturing are constants of the capture",
        notes=notes(event),
        fixes=help_text("draw with torch and choose with torch.where, or capture in eval mode"),
    )
