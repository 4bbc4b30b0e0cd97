"""A call wrote its caller's tensor, and the caller reads it again.

What it is. A function or a layer that works in place on its argument changes the tensor of whoever called it: a
`ReLU(inplace=True)` at the start of a branch, a logger that scales a batch for display.

What goes wrong. Nothing is raised. A skip connection adds the rectified input instead of the input; the model is
trained on the batch that was changed for a picture.

How to fix. Work on a new tensor in the callee (`x * std` for `x.mul_(std)`, `inplace=False` for a layer that is the
first to touch its input), or pass a clone.

When to ignore. When the caller wants the changed values: then bind the result to the name (`x = act(x)`), which also
tells readers so.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding, Span
from torchsan.model.events import InputOverwritten, OwnedWritten
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS204"
NAME = "callers-input-written"
LEVEL = "warning"

BAD = """
import torch

branch = torch.nn.Sequential(torch.nn.ReLU(inplace=True), torch.nn.Linear(4, 4))


def block(x):
    out = branch(x)  # <- TS204
    return out + x


stem = torch.nn.Linear(4, 4)
block(stem(torch.randn(8, 4))).sum().backward()
"""

GOOD = """
import torch

branch = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(4, 4))


def block(x):
    out = branch(x)
    return out + x


stem = torch.nn.Linear(4, 4)
block(stem(torch.randn(8, 4))).sum().backward()
"""

FIXES = (
    ("cause", "inplace_false"),
    ("mutated", "fresh_result"),
    ("cause", "clone_argument"),
    ("mutated", "clone_argument"),
    ("mutated", "bound_copy"),
    ("aliased", "kept_copy"),
)


def judge(event: Any, history: Any) -> Finding | None:
    if isinstance(event, OwnedWritten):
        return _owned(event)
    if not isinstance(event, InputOverwritten) or event.write.line is None:
        return None
    spans: list[Span] = []
    if event.constructor is not None:
        spans.append(event.constructor.span("cause", "this layer writes in place"))
    spans.extend(event.write.line.spans("mutated", f"{event.memory.quoted} is overwritten here", primary=True))
    if event.called.place != event.write.line.place:
        spans.append(event.called.span("cause", f"{event.memory.quoted} is passed here"))
    spans.append(event.read.span("needed", "and read again here, changed"))
    fix = "pass inplace=False to that layer" if event.constructor is not None else "make a new tensor in the callee"
    return finding(
        globals(),
        f"`{event.callee}` overwrites {event.memory.quoted}, which its caller reads again afterwards",
        spans,
        why="the argument is the caller's own memory; an in-place op on it changes what the caller has",
        fixes=(idea(fix), idea(f"pass a copy: {event.memory.name}.clone()")),
        certainty=event.certainty,
        cause=(CODE, event.called.place, event.memory.name, event.callee),
    )


def _owned(event: OwnedWritten) -> Finding | None:
    if event.write.line is None:
        return None
    whose = "its caller's tensor" if event.kind == "argument" else "what the object keeps for the next call"
    spans = event.write.line.spans("mutated", f"this is {whose}, changed in place", primary=True)
    if event.mixed:
        message = f"`{event.function}` writes {event.memory.quoted} in place, which on some paths is {whose}"
        why = "on other paths the same line writes a tensor of its own: whether others see the change hangs on the path"
    else:
        message = f"`{event.function}` writes its argument {event.memory.quoted} in place, and does not say so"
        why = "the argument is the caller's own memory; an in-place op on it changes what the caller has"
    return finding(globals(), message, spans, why=why, fixes=(idea("make a new tensor instead, or write to a clone"),))


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)
