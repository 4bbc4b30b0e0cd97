"""Memory that stands for several elements at once was written.

What it is. `expand` does not copy: all rows of `torch.eye(3).expand(n, 3, 3)` are one and the same row of memory.

What goes wrong. A write to the whole tensor is refused ("more than one element of the written-to tensor refers to
a single memory location"). A write to one row or element is not: it changes all of them, silently. Refused as well is
a write whose values are read from the same memory, shifted: `history[1:] = history[:-1]`.

How to fix. Make the rows real before writing: `repeat(n, 1, 1)`, or `expand(...).clone()`. To shift in place, copy
what is read: `history[1:] = history[:-1].clone()`.

When to ignore. When every copy is meant to change, write to the tensor from before the `expand` instead.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding, Span
from torchsan.model.events import OverlapWritten, RefusedWrite
from torchsan.rules import finding
from torchsan.rules.refusal import refusal_spans
from torchsan.rules.wording import idea

CODE = "TS107"
NAME = "overlapping-memory-written"
LEVEL = "error"

BAD = """
import torch

flips = torch.eye(3).expand(4, 3, 3)
flips[1, 0, 0] = -1.0  # <- TS107
print(flips.sum())
"""

GOOD = """
import torch

flips = torch.eye(3).repeat(4, 1, 1)
flips[1, 0, 0] = -1.0
print(flips.sum())
"""

FIX = (idea("copy before writing: .repeat(…) instead of .expand(…), or .expand(…).clone()"),)

FIXES = (
    ("cause", "own_memory"),
    ("origin", "own_memory"),
    ("mutated", "clone_operand"),
    ("mutated", "out_of_place"),
    ("mutated", "clone_before_write"),
)


def judge(event: Any, history: Any) -> Finding | None:
    if isinstance(event, OverlapWritten):
        spans: list[Span] = []
        if event.origin is not None:
            spans.append(event.origin.span("cause", "expanded here: no memory is copied"))
        if event.write.line is not None:
            spans.extend(event.write.line.spans("mutated", f"changes all {event.copies} copies", primary=True))
        return finding(
            globals(),
            f"one element of {event.memory.quoted} is written, and {event.copies} elements share its memory",
            spans,
            why="an expanded dimension has stride 0: every index along it is the same memory",
            fixes=FIX,
        )
    if isinstance(event, RefusedWrite) and event.reason == "operand-overlap":
        return finding(
            globals(),
            f"{event.memory.quoted} is written with values that are read from a shifted part of the same memory",
            refusal_spans(event, "written here"),
            why="some of these values would be overwritten before they are read, so torch refuses",
            fixes=(idea("copy what is read: .clone() on the right-hand side"),),
        )
    if isinstance(event, RefusedWrite) and event.reason == "overlap":
        return finding(
            globals(),
            f"{event.memory.quoted} has elements that share memory, and is written in place",
            refusal_spans(event, "written here"),
            why="an expanded tensor stores one element for many, so an in-place result has no place to go",
            fixes=FIX,
        )
    return None


def check(fact: Any, flow: Any) -> Finding | None:
    event = fact.event
    if not isinstance(event, OverlapWritten) or event.copies:
        return stated(judge(event, flow), fact)
    spans: list[Span] = []
    if event.origin is not None:
        spans.append(event.origin.span("cause", "expanded here: no memory is copied"))
    if event.write.line is not None:
        spans.extend(
            event.write.line.spans("mutated", "changes every element along the expanded dimension", primary=True)
        )
    message = f"an element of {event.memory.quoted} is written, and others share its memory"
    why = "an expanded dimension has stride 0: every index along it is the same memory"
    return stated(finding(globals(), message, spans, why=why, fixes=FIX), fact)
