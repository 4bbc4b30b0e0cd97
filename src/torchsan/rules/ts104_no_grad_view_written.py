"""A view that was made under no_grad was written while gradients are recorded.

What it is. A view remembers the mode in which it was made. One from `no_grad` or `inference_mode` is not part of
any graph, so a later write through it could not be differentiated.

What goes wrong. Torch refuses the write: "A view was created in no_grad mode and is being modified inplace with
grad mode enabled".

How to fix. Make the view where it is written, in grad mode; or write it inside `no_grad`, too, if no gradient is
wanted; or write a clone.

When to ignore. Never: the program stops here.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding
from torchsan.model.events import RefusedWrite
from torchsan.rules import finding
from torchsan.rules.refusal import refusal_spans
from torchsan.rules.wording import idea

CODE = "TS104"
NAME = "no-grad-view-written"
LEVEL = "error"

BAD = """
import torch

layer = torch.nn.Linear(3, 3)
out = layer(torch.ones(2, 3))
with torch.no_grad():
    first = out[0]
first.mul_(layer.weight.sum())  # <- TS104
out.sum().backward()
"""

GOOD = """
import torch

layer = torch.nn.Linear(3, 3)
out = layer(torch.ones(2, 3))
first = out[0]
first.mul_(layer.weight.sum())
out.sum().backward()
"""

FIXES = (
    ("origin", "grad_mode_view"),
    ("mutated", "out_of_place"),
    ("mutated", "under_no_grad"),
    ("origin", "kept_copy"),
)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, RefusedWrite) or event.reason != "no-grad-view":
        return None
    return finding(
        globals(),
        f"{event.memory.quoted} is a view made under no_grad, and is written while gradients are recorded",
        refusal_spans(event, "written here, in grad mode", "the view was made here, under no_grad"),
        why="a view made without gradients is in no graph, so a write through it cannot be differentiated",
        fixes=(idea("make the view in grad mode, or write inside no_grad if no gradient is wanted"),),
    )


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)
