"""A view that autograd does not let be written was written in place.

What it is. Two kinds of view refuse writes: a view of a leaf that requires grad (`weight[0]`, `weight.t()`), for
the same reason as the leaf itself, and one of several views that a function returned together (`chunk`, `split`,
`unbind`), because autograd could not tell what the write does to the others. No view at all can
be cut out of its graph in place, by `detach_()`.

What goes wrong. Torch refuses at the write. A common case is a clamp or an epsilon written into one half of
`mean, log_std = net(x).chunk(2, -1)`.

How to fix. Use the out-of-place op and bind its result: `log_std = log_std.clamp(-20, 2)`. For a leaf, write
inside `with torch.no_grad():`. Instead of `v.detach_()` write `v = v.detach()`.

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

CODE = "TS103"
NAME = "view-of-leaf-or-split-written"
LEVEL = "error"
REASONS = ("leaf-view", "multi-view", "detached-view")

BAD = """
import torch

net = torch.nn.Linear(3, 4)
mean, log_std = net(torch.ones(2, 3)).chunk(2, dim=-1)
log_std.clamp_(-20, 2)  # <- TS103
(mean + log_std.exp()).sum().backward()
"""

GOOD = """
import torch

net = torch.nn.Linear(3, 4)
mean, log_std = net(torch.ones(2, 3)).chunk(2, dim=-1)
log_std = log_std.clamp(-20, 2)
(mean + log_std.exp()).sum().backward()
"""

FIXES = (("mutated", "leaf_write"), ("mutated", "single_views"))


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, RefusedWrite) or event.reason not in REASONS:
        return None
    if event.reason == "leaf-view":
        message = f"{event.memory.quoted} requires grad, and a part of it is written in place"
        why = "a view of a leaf is the leaf's own memory; writing it would make the leaf a computed value"
        fixes = (idea("write inside torch.no_grad(), or compute a new tensor"),)
        label = "written here, while gradients are recorded"
    elif event.reason == "detached-view":
        message = f"{event.memory.quoted} is a view, and is cut out of its graph in place"
        why = "`detach_()` would have to cut the tensor that the view is a part of, too; torch refuses"
        fixes = (idea("use `detach()` and bind its result to the name"),)
        label = "detached here"
    else:
        message = f"{event.memory.quoted} is one of several views returned together, and is written in place"
        why = "autograd cannot tell what a write to one of these views does to the others"
        fixes = (
            idea("put results of the op without the underscore together (torch.stack), or write the whole by index"),
        )
        label = "written here"
    return finding(globals(), message, refusal_spans(event, label, "the views were made here"), why=why, fixes=fixes)


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)
