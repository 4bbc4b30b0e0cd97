"""A Python branch is decided by a tensor's value.

## What it is
`if`, `while`, `assert`, `and`, `or` and `not` on a tensor, or on a number that came out of one
(`.item()`, `int()`), choose a path by what the data happen to be.

## What goes wrong
`torch.jit.trace` records the path that the example took and takes it for ever, for every input; its
TracerWarning does not stop it, and its own check passes because it uses the same example. `torch.export`
refuses, since it does not know the value.

## How to fix
Compute both sides and choose with `torch.where`; or put the branch into `torch.cond`; or move it out of
the model. Asserting the branch away makes the capture pass and the model wrong.

## When to ignore
When the value cannot differ in use. Compute it once in `__init__` then, so that forward does not ask.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.capture_events import Fault, ReadOut
from torchsan.rules import finding
from torchsan.rules._capture import help_text, level, notes, outcome, spans

CODE, NAME, LEVEL = "TS301", "branch-on-data", "error"

BAD = """
import torch


class Clip(torch.nn.Module):
    def forward(self, x):
        if x.abs().max() > 1:  # <- TS301
            return x / x.abs().max()
        return x


def make():
    return Clip(), (torch.tensor([0.5, 0.25, -0.5]),)
"""

GOOD = """
import torch


class Clip(torch.nn.Module):
    def forward(self, x):
        top = x.abs().max()
        return torch.where(top > 1, x / top, x)


def make():
    return Clip(), (torch.tensor([0.5, 0.25, -0.5]),)
"""

FIXES = (
    ("cause", "where_branch"),
    ("cause", "masked_loop"),
    ("cause", "skip_while_capturing"),
    ("cause", "cond_branch"),
    ("cause", "scripted"),
)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, Fault):
        return None
    cause = event.cause
    if not isinstance(cause, ReadOut) or cause.source != "data" or cause.use != "branch" or event.column == "seed":
        return None
    told = cause.before != cause.after and cause.after
    label = f"{cause.before} with the example, {cause.after} with other data" if told else "decided by data"
    return finding(
        globals(),
        f"a branch is decided by `{cause.text}`, a tensor's value: {outcome(event)}",
        spans(cause.place, label, cause.callers),
        level=level(event),
        why="a capture keeps the branch that the example took",
        notes=notes(event),
        fixes=help_text("compute both sides and choose with torch.where, or use torch.cond"),
    )
