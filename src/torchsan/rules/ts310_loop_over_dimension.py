"""A Python loop over a dimension is unrolled at the example's length.

## What it is
`for t in range(x.size(1))`, `for row in x`, a list built by such a loop and stacked.

## What goes wrong
The capture holds one copy of the body for each step of the example. Every input of the same length is
right; a longer one is cut off or fails, a shorter one fails. `torch.jit.trace` gives no warning for
`range(x.size(1))`; `torch.export` fixes the dimension.

## How to fix
Work on the whole dimension at once (most such loops are one batched call), or put the loop into a
`torch.jit.script` function or `torch.while_loop`/`scan`.

## When to ignore
When the length is the same for ever. Then leave the dimension out of `dynamic_shapes`.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.capture_events import Fault, ReadOut
from torchsan.rules import finding
from torchsan.rules._capture import help_text, level, notes, outcome, spans

CODE, NAME, LEVEL = "TS310", "loop-over-dimension", "error"

BAD = """
import torch


class Running(torch.nn.Module):
    def forward(self, x):
        total, rows = x[0] * 0, []
        for i in range(x.size(0)):  # <- TS310
            total = total + x[i]
            rows.append(total)
        return torch.stack(rows)


def make():
    return Running(), (torch.arange(6.0).view(3, 2),)
"""

GOOD = """
import torch


class Running(torch.nn.Module):
    def forward(self, x):
        return x.cumsum(0)


def make():
    return Running(), (torch.arange(6.0).view(3, 2),)
"""

FIXES = (("cause", "whole_dimension"), ("cause", "tensor_by_sizes"), ("cause", "scripted"))


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, Fault):
        return None
    cause = event.cause
    if not isinstance(cause, ReadOut) or cause.source != "shape" or cause.use not in ("loop", "rows"):
        return None
    return finding(
        globals(),
        f"{_what(cause)}{f' (`{event.dimension}`)' if event.dimension else ''}: {outcome(event)}",
        spans(cause.place, _label(cause), cause.callers),
        level=level(event),
        why="a capture holds one copy of the body for each step that the example took",
        notes=notes(event),
        fixes=help_text("work on the whole dimension at once"),
    )


def _what(cause: ReadOut) -> str:
    if cause.use == "rows":
        return f"`{cause.text}` keeps as many rows as the example has"
    loop = "the loop over" if cause.counts else "the loop that hangs on"
    return f"{loop} `{cause.text}` is unrolled at the example's size"


def _label(cause: ReadOut) -> str:
    if cause.before == cause.after or not cause.after:
        return "unrolled here"
    counted = "" if not cause.counts else " rows" if cause.use == "rows" else " rounds"
    return f"{cause.before}{counted} with the example, {cause.after} with another size"
