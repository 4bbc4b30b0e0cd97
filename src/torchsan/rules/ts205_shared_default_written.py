"""A default argument or a module-level constant is written by a function that runs again.

What it is. A default argument is made once, when the function is defined; a constant of the module lives as long as
the program. A function that writes such a tensor in place starts its next call from what the last one left.

What goes wrong. Nothing is raised. Results depend on how often the function was called before.

How to fix. Use `None` as the default and make the tensor inside; copy a constant before writing (`mask =
MASK.clone()`).

When to ignore. When the tensor is meant to carry state: then a buffer or an attribute says so.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding
from torchsan.model.events import SharedDefaultWritten
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS205"
NAME = "shared-default-written"
LEVEL = "warning"

BAD = """
import torch


def accumulate(x, total=torch.zeros(3)):
    total += x  # <- TS205
    return total * 2


for _ in range(3):
    accumulate(torch.ones(3))
"""

GOOD = """
import torch


def accumulate(x, total=None):
    total = torch.zeros(3) if total is None else total
    total = total + x
    return total * 2


for _ in range(3):
    accumulate(torch.ones(3))
"""

FIXES = (
    ("mutated", "fresh_default"),
    ("mutated", "fresh_result"),
    ("mutated", "bound_copy"),
    ("mutated", "clone_global"),
)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, SharedDefaultWritten) or event.write.line is None:
        return None
    if event.form == "default":
        message = f"the default of argument {event.memory.quoted} is written by `{event.function}`: calls share it"
        why = "a default is made once, when the function is defined, and is the same tensor in every call"
        fix = idea(f"use {event.memory.name}=None and make the tensor inside the function")
    elif event.form == "stored":
        message = (
            f"{event.memory.quoted} is a view of `{event.owner}`, and `{event.function}` changes it at every visit"
        )
        why = "indexing a tensor gives a view; what is written to it stays in the data set"
        fix = idea(f"write to a new tensor: {event.memory.name} = {event.memory.name} …, or .clone() it first")
    else:
        message = f"the constant {event.memory.quoted} is written by `{event.function}`, which runs again"
        why = "a tensor of the module is the same in every call; an in-place write changes it for all"
        fix = idea(f"write to {event.memory.name}.clone()")
    spans = event.write.line.spans("mutated", "written here, for all later calls", primary=True)
    return finding(globals(), message, spans, why=why, fixes=(fix,))


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)
