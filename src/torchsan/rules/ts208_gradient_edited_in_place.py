"""A hook or a custom backward wrote the gradient it was given, while another path still needed it.

What it is. Autograd hands the same gradient tensor to every input that it belongs to: both operands of `a + b` get one
tensor. A hook that edits its argument in place edits the gradient of the others, too.

What goes wrong. Nothing is raised. Gradients of tensors that have nothing to do with the hook are scaled, clipped or
zeroed along with it, depending on the order in which backward happens to run.

How to fix. Return a new tensor from the hook: `return g.clamp(-1, 1)` for `g.clamp_(-1, 1)`. The same holds for
`grad_output` in `torch.autograd.Function.backward`.

When to ignore. Never: another gradient has been changed.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.events import GradientEdited
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS208"
NAME = "gradient-edited-in-place"
LEVEL = "error"

BAD = """
import torch

layer = torch.nn.Linear(3, 3)
a, b = layer(torch.ones(2, 3)), layer(torch.zeros(2, 3))
b.register_hook(lambda g: g.mul_(0))  # <- TS208
(a + b).pow(2).sum().backward()
"""

GOOD = """
import torch

layer = torch.nn.Linear(3, 3)
a, b = layer(torch.ones(2, 3)), layer(torch.zeros(2, 3))
b.register_hook(lambda g: g * 0)
(a + b).pow(2).sum().backward()
"""

FIXES = (
    ("mutated", "fresh_result"),
    ("mutated", "returned_twin"),
    ("mutated", "clone_before_write"),
    ("mutated", "bound_copy"),
)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, GradientEdited) or event.write.line is None:
        return None
    spans = event.write.line.spans("mutated", "written here, for all who share it", primary=True)
    if event.needed is not None:
        spans.append(event.needed.span("needed", "during this backward"))
    return finding(
        globals(),
        f"the gradient {event.memory.quoted} is edited in place while another path of backward still needs it",
        spans,
        why="autograd gives one gradient tensor to all inputs that it belongs to; it is not the hook's own",
        fixes=(idea("return a new tensor instead of writing into the one that was given"),),
    )
