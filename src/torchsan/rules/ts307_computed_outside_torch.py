"""Part of the result is computed outside torch.

## What it is
`x.numpy()` and what is computed from it, values fetched from Python lists, other libraries, or memory
shared with them. `x.data`, too: a trace does not see it and holds what the example had.

## What goes wrong
A capture sees only torch operations. What NumPy computed from the example is a constant in it.

## How to fix
Use the torch function of the same name (`torch.sort`, `torch.unique`, `torch.fft`), or wrap the outside
function as an operator with `torch.library.custom_op`. For `x.data` write `x.detach()`.

## When to ignore
When the value does not depend on the input: compute it in `__init__`.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.capture_events import Fault, ReadOut
from torchsan.rules import finding
from torchsan.rules._capture import help_text, level, notes, outcome, spans

CODE, NAME, LEVEL = "TS307", "computed-outside-torch", "error"

BAD = """
import numpy
import torch


class Median(torch.nn.Module):
    def forward(self, x):
        middle = numpy.median(x.numpy())  # <- TS307
        return x - float(middle)


def make():
    return Median(), (torch.tensor([1.0, 5.0, 2.0]),)
"""

GOOD = """
import torch


class Median(torch.nn.Module):
    def forward(self, x):
        return x - x.median()


def make():
    return Median(), (torch.tensor([1.0, 5.0, 2.0]),)
"""

FIXES = (("cause", "by_torch"), ("cause", "plain_number"))
WAYS = {
    "numpy": (
        "hands a tensor to NumPy",
        "use the torch function, or wrap the outside one with torch.library.custom_op",
    ),
    "data": ("takes a tensor by `.data`, which no trace sees", "use detach(), which is an operation"),
}


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, Fault):
        return None
    cause = event.cause
    if not isinstance(cause, ReadOut) or cause.kind not in WAYS or cause.use != "array" or event.column == "seed":
        return None
    does, instead = WAYS[cause.kind]
    return finding(
        globals(),
        f"`{cause.text}` {does}: {outcome(event)}",
        spans(cause.place, "leaves torch here", cause.callers),
        level=level(event),
        why="what is computed outside torch from the example is a constant of the capture",
        notes=notes(event),
        fixes=help_text(instead),
    )
