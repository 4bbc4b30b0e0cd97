"""A tensor's value leaves torch as a Python number.

## What it is
`.item()`, `float(t)`, `int(t)`, `.tolist()`, `math.sqrt(t)`: a Python number that depends on data and is
used in the computation.

## What goes wrong
A trace holds the example's number as a constant. `torch.export` treats `.item()` as unknown and fails
where the number is needed.

## How to fix
Stay with tensors: a tensor with no dimensions does everything that the number does (`x / x.sum()`
instead of `x / x.sum().item()`).

## When to ignore
When the number is only printed or logged and does not reach the output.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.capture_events import Fault, ReadOut
from torchsan.rules import finding
from torchsan.rules._capture import help_text, level, notes, outcome, spans

CODE, NAME, LEVEL = "TS303", "python-number-from-tensor", "error"

BAD = """
import torch


class Normalise(torch.nn.Module):
    def forward(self, x):
        total = float(x.sum())  # <- TS303
        return x * total


def make():
    return Normalise(), (torch.tensor([1.0, 2.0, 3.0]),)
"""

GOOD = """
import torch


class Normalise(torch.nn.Module):
    def forward(self, x):
        total = x.sum()
        return x * total


def make():
    return Normalise(), (torch.tensor([1.0, 2.0, 3.0]),)
"""

FIXES = (("cause", "plain_size"), ("cause", "plain_number"), ("cause", "tensor_by_sizes"), ("cause", "scripted"))


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, Fault):
        return None
    cause = event.cause
    if not isinstance(cause, ReadOut) or cause.source != "data" or event.column == "seed":
        return None
    if cause.use not in ("number", "array") or cause.kind in ("numpy", "data"):
        return None
    told = cause.before != cause.after and cause.after
    label = f"{cause.before} with the example, {cause.after} with other data" if told else "leaves torch here"
    return finding(
        globals(),
        f"`{cause.text}` turns a tensor's value into a Python number: {outcome(event)}",
        spans(cause.place, label, cause.callers),
        level=level(event),
        why="a capture keeps the example's number as a constant",
        notes=notes(event),
        fixes=help_text("keep it a tensor"),
    )
