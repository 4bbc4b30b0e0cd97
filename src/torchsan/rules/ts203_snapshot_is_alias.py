"""A snapshot is the live memory, and goes on changing with it.

What it is. `model.state_dict()`, `list(model.parameters())`, `model.to(device)` and a buffer put into a list do not
copy. What is kept as "best", "old" or "target" is the tensor that the optimizer goes on writing.

What goes wrong. Nothing is raised. Restoring the best weights restores the last ones; a penalty towards an anchor
is always zero; a target network moves with the network it should steady; a history holds one value many times.

How to fix. Copy: `copy.deepcopy(model.state_dict())`, `[p.detach().clone() for p in model.parameters()]`,
`copy.deepcopy(model)`, `history.append(buffer.clone())`.

When to ignore. When the two are meant to be one, as tied weights are: then a name that promises no copy says so.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding, Fix, Span
from torchsan.model.events import AliasedSnapshot
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS203"
NAME = "snapshot-is-alias"
LEVEL = "warning"

BAD = """
import torch

model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
best = model.state_dict()  # <- TS203
for _ in range(3):
    opt.zero_grad()
    model(torch.ones(2, 3)).pow(2).mean().backward()
    opt.step()
model.load_state_dict(best)
"""

GOOD = """
import copy

import torch

model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
best = copy.deepcopy(model.state_dict())
for _ in range(3):
    opt.zero_grad()
    model(torch.ones(2, 3)).pow(2).mean().backward()
    opt.step()
model.load_state_dict(best)
"""

FIXES = (("aliased", "kept_copy"), ("cause", "kept_copy"), ("mutated", "fresh_default"))


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, AliasedSnapshot):
        return None
    spans: list[Span] = []
    if event.taken is not None:
        spans.append(event.taken.span("cause", TAKEN[event.form], primary=True))
    if event.write is not None and event.write.line is not None:
        label = "written again here" if event.form == "list" else "and this moves it"
        spans.append(event.write.line.span("mutated", label, primary=event.taken is None))
    if event.used is not None:
        spans.append(event.used.span("needed", "used here as if it were a copy"))
    if not spans:
        return None
    return finding(globals(), _message(event), spans, why=WHY[event.form], fixes=FIXES_BY_FORM[event.form])


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)


def _message(event: AliasedSnapshot) -> str:
    name = event.memory.quoted
    if event.form == "list":
        return f"`{event.other}` holds the memory of {name} {event.entries} times: all its entries are one tensor"
    if event.form == "module":
        return f"{name} is `{event.other}` itself, not a copy: every step moves both"
    if event.form == "memory":
        return f"{name} has the parameters of `{event.other}` as its own, not copies: every step moves both"
    if event.form == "difference":
        return f"{name} holds {event.other} themselves, not copies: every step moves them, too"
    return f"{name} shares memory with the model, and the model was trained after it was taken"


TAKEN = {
    "state_dict": "taken here: no tensor is copied",
    "difference": "taken here: no tensor is copied",
    "module": "the same module gets a second name here",
    "memory": "two parameters become one memory here",
    "list": "kept here without a copy",
}
WHY = {
    "state_dict": "state_dict() returns the parameters' own memory",
    "difference": "the list holds the parameters, which the optimizer writes in place",
    "module": "Module.to() and plain assignment return the module itself",
    "memory": "`a.data = b.data` shares the memory of b, as does load_state_dict(…, assign=True)",
    "list": "appending a tensor keeps a reference to its memory, which is written again in place",
}
FIXES_BY_FORM: dict[str, tuple[Fix, ...]] = {
    "state_dict": (idea("copy.deepcopy(model.state_dict())"),),
    "difference": (idea("[p.detach().clone() for p in model.parameters()]"),),
    "module": (idea("copy.deepcopy(model)"),),
    "memory": (idea("copy the values: a.data.copy_(b.data), or a.load_state_dict(b.state_dict())"),),
    "list": (idea("append a clone: .append(x.clone())"),),
}
