"""The number of rounds of a Python loop comes from a tensor's value.

## What it is
`for _ in range(int(x.norm()))`, `while error > tol`, a loop over `lengths.tolist()`: data decide how
often the body runs.

## What goes wrong
A trace contains the body as often as the example ran it, and runs it as often for every other input.
`torch.export` refuses.

## How to fix
Run a fixed number of rounds and mask the ones that do not count (`torch.where(i < n, new, old)`), or use
`torch.while_loop`. `torch.jit.script` keeps the loop, but TorchScript is deprecated.

## When to ignore
When the count is a setting rather than data: pass it as a Python number.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.capture_events import Fault, ReadOut
from torchsan.rules import finding
from torchsan.rules._capture import help_text, level, notes, outcome, spans

CODE, NAME, LEVEL = "TS302", "loop-count-from-data", "error"

BAD = """
import torch


class Repeat(torch.nn.Module):
    def forward(self, x):
        rounds = int(x.abs().max())  # <- TS302
        for _ in range(rounds):
            x = torch.tanh(x) + 1
        return x


def make():
    return Repeat(), (torch.tensor([2.5, 1.0]),)
"""

GOOD = """
import torch


class Repeat(torch.nn.Module):
    def forward(self, x):
        rounds = x.abs().max().floor()
        for i in range(8):
            x = torch.where(i < rounds, torch.tanh(x) + 1, x)
        return x


def make():
    return Repeat(), (torch.tensor([2.5, 1.0]),)
"""

FIXES = (("cause", "masked_loop"), ("cause", "scripted"), ("cause", "while_loop"))


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, Fault):
        return None
    cause = event.cause
    if not isinstance(cause, ReadOut) or cause.source != "data" or cause.use != "loop" or event.column == "seed":
        return None
    told = cause.before != cause.after and cause.after
    label = f"{cause.before} with the example, {cause.after} with other data" if told else "a count from data"
    return finding(
        globals(),
        f"a loop's count comes from `{cause.text}`, a tensor's value: {outcome(event)}",
        spans(cause.place, label, cause.callers),
        level=level(event),
        why="a capture repeats the body as often as the example did",
        notes=notes(event),
        fixes=help_text("run a fixed number of rounds and mask the rest with torch.where, or use torch.while_loop"),
    )
