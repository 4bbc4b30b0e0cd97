"""A saved value was changed behind autograd's back: the gradient is wrong and nothing says so.

What it is. Writes through `.data`, through a NumPy array that shares the tensor's memory, through DLPack, a storage
or a collective are not counted by the version counter. Autograd cannot know that a value it saved has changed. Nor
does it look at a tensor that a custom function kept by `ctx.x = x` instead of `ctx.save_for_backward(x)`.

What goes wrong. Nothing is raised. `backward()` computes the gradient from the changed value: not that of the
program that ran.

How to fix. Write to a copy (`w = p.detach().cpu().numpy().copy()`), write before the forward or after the backward,
or use an ordinary op, whose write autograd can see and refuse.

When to ignore. When the gradient is not used; then compute under `no_grad`.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding, Fix
from torchsan.model.events import StaleSave
from torchsan.rules import finding
from torchsan.rules.wording import idea, stale_spans, why_kept

CODE = "TS201"
NAME = "saved-value-changed-silently"
LEVEL = "error"

BAD = """
import torch

layer = torch.nn.Linear(3, 3)
h = torch.tanh(layer(torch.ones(2, 3)))
h.data.mul_(0.5)  # <- TS201
h.sum().backward()
"""

GOOD = """
import torch

layer = torch.nn.Linear(3, 3)
h = torch.tanh(layer(torch.ones(2, 3)))
h = h * 0.5
h.sum().backward()
"""

HOW = {
    "data": "through `.data`",
    "set_data": "by an assignment to `.data`",
    "foreign": "from outside torch",
    "collective": "by a collective operation",
    "op": "in place: torch does not check what is kept on `ctx`",
}

FIXES = (
    ("mutated", "array_copy"),
    ("aliased", "array_copy"),
    ("mutated", "local_value"),
    ("mutated", "tracked_write"),
    ("mutated", "out_of_place"),
    ("mutated", "clone_before_write"),
    ("mutated", "clone_for_collective"),
    ("saved", "clone_saved"),
    ("mutated", "without_buffer_broadcast"),
    ("mutated", "step_later"),
)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, StaleSave) or not event.silent or event.write.kind not in HOW:
        return None
    foreign = event.write.kind == "foreign"
    # Where the writing line itself is not known, the line that let the memory out stands for it.
    handed_out = foreign and (event.exposed is None or event.write.line == event.exposed)
    label = "memory handed out here, and written later" if handed_out else "changed here, unseen by autograd"
    spans = stale_spans(event, label)
    if handed_out:
        spans = [span for span in spans if span.role != "aliased"]
    return finding(
        globals(),
        f"{event.memory.quoted}, saved by `{event.save.op}` for its gradient, was changed {HOW[event.write.kind]}",
        spans,
        why=why_kept(event.save),
        notes=("torch raises nothing here: the gradient is computed from the changed value",),
        fixes=_ideas(event),
    )


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)


def _ideas(event: StaleSave) -> tuple[Fix, ...]:
    if event.write.kind == "foreign":
        return (idea("hand out a copy: .numpy().copy(), or .clone() before from_numpy memory enters the model"),)
    if event.write.kind == "collective":
        return (idea("reduce a detached clone, or reduce after backward"),)
    return (idea("use the ordinary out-of-place op, or write after backward"),)
