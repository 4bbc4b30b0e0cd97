"""A size of the example is frozen into the capture.

## What it is
A size becomes a Python number (`int(x.size(0))`, `len(x)`, `torch.tensor([h, w])`) or decides a branch
(`if x.size(1) > 10`).

## What goes wrong
A trace keeps the number or the branch: other sizes fail or, worse, give wrong results. `torch.export`
fixes the dimension, and refuses other sizes.

## How to fix
Use sizes as torch gives them, without `int()`: `x.view(x.size(0), -1)`, `F.interpolate(a, size=b.shape[2:])`,
`x.new_ones(n) * h`. Make a table large enough once and slice it by the size.

## When to ignore
When the dimension has one size for ever. Then leave it out of `dynamic_shapes`.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding, Place
from torchsan.model.capture_events import Departure, Fault, ReadOut
from torchsan.rules import finding
from torchsan.rules._capture import help_text, level, notes, outcome, spans

CODE, NAME, LEVEL = "TS304", "shape-frozen", "error"

BAD = """
import torch


class Pool(torch.nn.Module):
    def forward(self, x):
        rows = int(x.size(0))  # <- TS304
        return x.sum(0) / rows


def make():
    return Pool(), (torch.arange(6.0).view(3, 2),)
"""

GOOD = """
import torch


class Pool(torch.nn.Module):
    def forward(self, x):
        return x.sum(0) / x.size(0)


def make():
    return Pool(), (torch.arange(6.0).view(3, 2),)
"""

FIXES = (
    ("cause", "plain_size"),
    ("cause", "tensor_by_sizes"),
    ("cause", "without_memo"),
    ("cause", "where_branch"),
    ("cause", "scripted"),
)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, Fault):
        return None
    cause = event.cause
    callers: tuple[Place, ...] = ()
    where = f" (`{event.dimension}`)" if event.dimension else ""
    if isinstance(cause, Departure) and cause.only_size_one:
        message = f"size 1 is special to exporters{where}, other sizes agree: {outcome(event)}"
        label = "a size comes to 1 here" if cause.is_operation else "this model"
    elif isinstance(cause, ReadOut) and cause.source == "shape" and cause.use not in ("loop", "rows"):
        does = f"freezes a size of the example{where}"
        if cause.limit:
            # A long relation is in the note, whole.
            does = f"holds sizes to `{cause.limit}`" if len(cause.limit) <= 60 else f"allows not every size{where}"
        message = f"`{cause.text}` {does}: {outcome(event)}"
        told = cause.before != cause.after and cause.after
        label = f"{cause.before} with the example, {cause.after} with another size" if told else "frozen here"
        callers = cause.callers
    else:
        return None
    return finding(
        globals(),
        message,
        spans(cause.place, label, callers),
        level=level(event),
        why="a size that became a Python number or a branch is a constant of the capture",
        notes=notes(event),
        fixes=help_text("use the size as torch gives it, without int(), len() or a Python branch"),
    )
