"""An op, or a statement, overwrites memory that it still has to read.

What it is. `torch.bmm(a, h, out=h)` writes its result into one of its operands while it reads it. `x[0], x[1] = x[1],
x[0]` takes two views, writes the first row, and then reads it, changed, for the second.

What goes wrong. Nothing is raised. Part of the result is computed from values that have been replaced: one row twice
instead of two rows exchanged, a product with a matrix that changes on the way.

How to fix. Give the result memory of its own (`h = torch.bmm(a, h)`), or copy what is overwritten (`x[0], x[1] =
x[1].clone(), x[0].clone()`, `x[[0, 1]] = x[[1, 0]]`).

When to ignore. Never: the same op on copies gives other values.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding, Span
from torchsan.model.events import OperandOverwritten
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS210"
NAME = "operand-overwritten"
LEVEL = "error"

BAD = """
import torch

x = torch.arange(12.0).reshape(3, 4)
x[:, 1:] = x[:, :-1]  # <- TS210
print(x)
"""

GOOD = """
import torch

x = torch.arange(12.0).reshape(3, 4)
x[:, 1:] = x[:, :-1].clone()
print(x)
"""

FIXES = (("mutated", "fresh_result"),)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, OperandOverwritten) or event.write.line is None:
        return None
    name = event.memory.quoted
    spans: list[Span] = []
    if event.form == "exchange":
        if event.first is not None and event.first.place != event.write.line.place:
            spans.append(event.first.span("mutated", "overwritten here"))
        spans += event.write.line.spans("needed", "and read here through a view, changed", primary=True)
        return finding(
            globals(),
            f"the values exchanged in {name} are views: the first write has changed what the second reads",
            spans,
            why="indexing gives a view, not a copy; after the first write both sides hold the same values",
            fixes=(idea("copy one side: .clone()"),),
        )
    if event.form == "windows":
        spans += event.write.line.spans("mutated", "each window is changed after the one before", primary=True)
        return finding(
            globals(),
            f"windows of one memory are changed in turn through {name}, and they overlap",
            spans,
            level="warning",
            why="slices and unfold give views: a window finds what the change of the one before has left",
            fixes=(idea("change copies of the windows: .clone(), or an op that makes a new tensor"),),
        )
    if event.form == "shifted":
        spans += event.write.line.spans("mutated", "reads what it has just written", primary=True)
        return finding(
            globals(),
            f"elements of {name} are moved along inside of it: torch refuses this, or smears the first ones",
            spans,
            why="both sides are views of one memory, which overlap; torch copies them in no order one can rely on",
            fixes=(idea("copy what is moved: x[1:] = x[:-1].clone()"),),
        )
    spans += event.write.line.spans("mutated", "written here while it is read", primary=True)
    return finding(
        globals(),
        f"`{event.write.op}` writes {name} while it reads it: on memory of its own it gives other values",
        spans,
        why=f"the same op on copies of its operands differs by up to {event.difference:.3g}",
        fixes=(idea("give the result memory of its own, without out="),),
    )


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)
