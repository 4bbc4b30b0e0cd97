"""Memory that outlives the call is written: a default argument, a class attribute, a cached result, stored data.

What it is. A default argument is made once, when the function is defined; an attribute of a class is one for all
instances; a constant of the module, a memoised result and the samples of a data set live as long as their owner. A
function that changes such a tensor in place starts its next call from what the last one left.

What goes wrong. Nothing is raised. Results depend on how often the function was called before.

How to fix. Use `None` as the default and make the tensor inside; copy a constant before writing (`mask =
MASK.clone()`).

When to ignore. When the tensor is meant to carry state: then a buffer or an attribute says so.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding, Span
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
    message, why, fix = _words(event)
    spans: list[Span] = []
    if event.stored is not None:
        spans.append(event.stored.span("aliased", "made here, once"))
    spans += event.write.line.spans("mutated", "written here, for all later calls", primary=True)
    if event.read is not None:
        spans.append(event.read.span("needed", "and read here"))
    return finding(
        globals(), message, spans, why=why, fixes=(idea(fix),), certainty=event.certainty, cause=(CODE, message)
    )


def _words(event: SharedDefaultWritten) -> tuple[str, str, str]:
    """What happens, why, and what to do."""
    name, function = event.memory.quoted, f"`{event.function}`"
    if event.form == "default":
        return (
            f"the default of argument {name} is written by {function}: calls share it",
            "a default is made once, when the function is defined, and is the same tensor in every call",
            f"use {event.memory.name}=None and make the tensor inside the function",
        )
    if event.form == "class":
        return (
            f"{name} belongs to the class `{event.owner}`, and {function} writes it: all instances share it",
            "an attribute of a class is one tensor for all instances; `self.x += y` writes it before it binds `self.x`",
            f"make it in __init__: self.{event.memory.name} = …",
        )
    if event.form == "cache":
        return (
            f"{name} is a cached result of `{event.owner}`, and {function} changes it for all later calls",
            "a memoised function returns the same tensor every time",
            f"write to a new tensor, or to {event.memory.name}.clone()",
        )
    if event.form == "stored":
        return (
            f"{name} is the memory of `{event.owner}`, and {function} changes it at every visit",
            "indexing a tensor or a container gives the stored memory; what is written to it stays there",
            f"write to a new tensor: {event.memory.name} = {event.memory.name} …, or .clone() it first",
        )
    return (
        f"the constant {name} is written by {function}, which runs again",
        "a tensor of the module is the same in every call; an in-place write changes it for all",
        f"write to {event.memory.name}.clone()",
    )


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)
