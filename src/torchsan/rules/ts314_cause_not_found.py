"""Capture and model disagree, and no line could be proved to be the cause.

## What it is
An input on which the capture gives another result than the model, or refuses what the model accepts. torchsan
tries every read-out, every state and every write that could be the cause: none of them, replaced by what the
capture holds, makes the model do what the capture does. Or the capture is right as soon as TorchScript does not
optimise it, and no line of the model is to blame.

## What goes wrong
The capture is not the model. The line that is shown is the first operation at which the two part, or, where
that cannot be told, the model.

## How to fix
Look at what leads to that operation: code that asks whether it is being captured (`torch.jit.is_tracing()`),
values computed outside torch and handed back, operations that the exporter translates in another way. Take
another way of capturing. Where TorchScript's optimiser is to blame, run the capture in
`torch.jit.optimized_execution(False)`.

## When to ignore
When the counterexample is not an input that the capture will get.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.capture_events import Departure, Fault
from torchsan.rules import finding
from torchsan.rules._capture import help_text, level, notes, outcome, spans

CODE, NAME, LEVEL = "TS314", "cause-not-found", "error"

BAD = """
import torch


class Head(torch.nn.Module):
    def forward(self, x):
        if torch.jit.is_tracing():
            return x.cos()
        return x.sin()  # <- TS314


def make():
    return Head(), (torch.tensor([1.0, 2.0]),)
"""

GOOD = """
import torch


class Head(torch.nn.Module):
    def forward(self, x):
        return x.sin()


def make():
    return Head(), (torch.tensor([1.0, 2.0]),)
"""

COLUMNS = {
    "values": "with other values",
    "size": "with another size",
    "calls": "when called again",
    "seed": "with another random state",
    "dtype": "with another dtype",
}


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, Fault) or not isinstance(event.cause, Departure) or event.column in ("effects", "mode"):
        return None
    cause = event.cause
    if cause.only_size_one:
        return None
    when = COLUMNS.get(event.column, "")
    where = f" (`{event.dimension}`)" if event.dimension else ""
    message = f"capture and model part{' ' * bool(when)}{when}{where}, cause not found: {outcome(event)}"
    label, help_line = "this model", "see what leads to the counterexample, or take another way of capturing"
    if cause.by_optimiser:
        message = f"TorchScript's optimiser breaks the capture{' ' * bool(when)}{when}{where}: {outcome(event)}"
        help_line = "run the capture in torch.jit.optimized_execution(False), or take another way of capturing"
        if cause.is_operation:
            label = "without this write in place the capture agrees"
            help_line = "compute a new tensor (`x = x + y` instead of `x += y`)"
    elif cause.is_operation:
        label = "the first operation at which the two part"
    return finding(
        globals(),
        message,
        spans(cause.place, label),
        level=level(event),
        why=(
            "without optimisation the same capture agrees"
            if cause.by_optimiser
            else "no read-out, state or write, replaced by what the capture holds, explains it"
        ),
        notes=notes(event),
        fixes=help_text(help_line),
    )
