"""A value that autograd saved was overwritten before backward needed it.

What it is. Some ops need their input or their result again to compute a gradient: `exp` its result, a product
its factors. Autograd keeps a reference, not a copy. When an in-place write (`+=`, `x[i] = …`, `relu_`,
`inplace=True`) changes that memory, the saved value is gone.

What goes wrong. `backward()` raises "one of the variables needed for gradient computation has been modified by
an inplace operation", and names neither the variable nor the line that wrote.

How to fix. Write the new value to new memory: `h = h + r` for `h += r`, `masked_fill` for a masked assignment,
`inplace=False` at the layer's constructor. Copying with `clone()` helps only if the copy is what gets written.
An in-place write to a value that nobody saved is fine, and torchsan says nothing about it.

When to ignore. Never: the gradient cannot be computed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torchsan.check.facts import stated
from torchsan.effects import differing_versions, table_version
from torchsan.model import Finding, Fix
from torchsan.model.events import StaleSave
from torchsan.rules import finding
from torchsan.rules.wording import idea, result_saved, stale_spans, story, versions, why_kept, write_words

CODE = "TS101"
NAME = "saved-value-overwritten"
LEVEL = "error"

BAD = """
import torch

layer = torch.nn.Linear(4, 4)
h = torch.sigmoid(layer(torch.ones(2, 4)))
h += 1.0  # <- TS101
h.sum().backward()
"""

GOOD = """
import torch

layer = torch.nn.Linear(4, 4)
h = torch.sigmoid(layer(torch.ones(2, 4)))
h = h + 1.0
h.sum().backward()
"""

FIXES = (
    ("origin", "inplace_false"),
    ("mutated", "tracked_write"),
    ("mutated", "out_of_place"),
    ("saved", "clone_saved"),
    ("mutated", "clone_before_write"),
    ("mutated", "clone_argument"),
    ("saved", "clone_saved_result"),
    ("mutated", "single_views"),
    ("mutated", "listed_results"),
    ("mutated", "step_later"),
)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, StaleSave) or event.silent:
        return None
    if event.write.kind == "optimizer" or event.memory.kind in ("buffer", "parameter"):
        return None
    name, saver = event.memory.quoted, f"`{event.save.op}`" if event.save.op else "autograd"
    role = "saved it as an input" if event.save.what and not result_saved(event.save) else "saved it"
    message = f"{name} was overwritten after {saver} {role} for a gradient"
    if event.write.line is None:
        message = f"{name}, saved by {saver} for a gradient, was overwritten before backward"
    spans = stale_spans(event, f"overwritten here{versions(event)}")
    return finding(globals(), message, spans, why=why_kept(event.save), notes=_notes(event), fixes=_ideas(event))


def check(fact: Any, flow: Any) -> Finding | None:
    found = stated(judge(fact.event, flow), fact)
    if found is None:
        return None
    op = fact.event.save.op
    if others := differing_versions(op):
        note = f"`{op}` saves other values in torch {', '.join(others)}; this is torch {table_version()}"
        return replace(found, notes=(*found.notes, note))
    return found


def _notes(event: StaleSave) -> tuple[str, ...]:
    if event.needed is None:
        return ("no backward has needed it yet; one that does will fail",)
    if event.write.line is None:
        return ("the write was not seen by torchsan: it happened in compiled code or before the recorder was on",)
    if event.constructor is not None and event.save.line is not None and result_saved(event.save):
        return (f"an in-place layer after `{event.save.op}`, which keeps its own output, destroys that output",)
    return tuple(filter(None, [story(event)]))


def _ideas(event: StaleSave) -> tuple[Fix, ...]:
    name, op = event.memory.name or "x", event.write.op
    if event.constructor is not None:
        return (idea(f"pass inplace=False at {event.constructor}"),)
    if op == "__setitem__":
        return (idea(f"build a new tensor instead: torch.where, masked_fill, index_put or torch.stack for {name}"),)
    symbol = OPERATORS.get(op)
    if symbol is not None:
        return (idea(f"write to new memory: {name} = {name} {symbol} …"),)
    if op.endswith("_"):
        return (idea(f"write to new memory: {name} = {name}.{op.rstrip('_')}(…)"),)
    if not op:
        return (idea(f"write the new value to new memory instead of into {name}"),)
    return (idea(f"let {write_words(event.write)} make a new tensor"),)


OPERATORS = {
    "__iadd__": "+",
    "__isub__": "-",
    "__imul__": "*",
    "__itruediv__": "/",
    "__idiv__": "/",
    "__ipow__": "**",
    "add_": "+",
    "sub_": "-",
    "mul_": "*",
    "div_": "/",
}
