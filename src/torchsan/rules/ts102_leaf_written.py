"""A leaf tensor that requires grad was written in place.

What it is. A leaf is where gradients arrive: a parameter, or a tensor made with `requires_grad=True`. Writing it
in place while gradients are recorded would make it the result of an operation and a leaf at once.

What goes wrong. Torch refuses at the write: "a leaf Variable that requires grad is being used in an in-place
operation". The line it stops at is the right one; the reason is often looked for elsewhere (in tracing, in a
missing `clone()`), where it is not.

How to fix. To compute with a changed value, make a new tensor (`w2 = w + d`). To change the leaf itself, as an
optimizer or an initialisation does, write inside `with torch.no_grad():`.

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

CODE = "TS102"
NAME = "leaf-written"
LEVEL = "error"

BAD = """
import torch

weight = torch.zeros(3, requires_grad=True)
loss = (weight * 2).sum()
loss.backward()
weight -= 0.1 * weight.grad  # <- TS102
"""

GOOD = """
import torch

weight = torch.zeros(3, requires_grad=True)
loss = (weight * 2).sum()
loss.backward()
with torch.no_grad():
    weight -= 0.1 * weight.grad
"""

FIXES = (("mutated", "leaf_write"),)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, RefusedWrite) or event.reason != "leaf":
        return None
    what = "parameter" if event.memory.kind == "parameter" else "leaf tensor"
    message = f"{event.memory.quoted} is a {what} that requires grad, and is written in place"
    return finding(
        globals(),
        message,
        refusal_spans(event, "written here, while gradients are recorded"),
        why="a leaf collects a gradient; an in-place write would turn it into the result of an operation",
        fixes=(
            idea("to use a changed value, compute a new tensor and leave the leaf alone"),
            idea("to change the leaf itself (a manual step, an initialisation), write inside torch.no_grad()"),
        ),
    )


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)
