"""A snapshot is the live memory, and goes on changing with it.

What it is. `model.state_dict()`, `list(model.parameters())`, `model.to(device)` and a buffer put into a list do not
copy. What is kept as "best", "old" or "target" is the tensor that the optimizer goes on writing.

What goes wrong. Nothing is raised. Restoring the best weights restores the last ones; a penalty towards an anchor
is always zero; a target network moves with the network it should steady; a history holds one value many times.

How to fix. Copy: `copy.deepcopy(model.state_dict())`, `[p.detach().clone() for p in model.parameters()]`,
`copy.deepcopy(model)`, `history.append(buffer.clone())`.

When to ignore. When the two are meant to be one, as tied weights and monitors of live weights are. Such cases are told
only with `--possible`.
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

FIXES = (
    ("aliased", "kept_copy"),
    ("cause", "kept_copy"),
    ("mutated", "handed_out_copy"),
    ("mutated", "fresh_default"),
)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, AliasedSnapshot):
        return None
    spans: list[Span] = []
    if event.taken is not None:
        spans.append(event.taken.span("aliased", TAKEN[event.form], primary=True))
    if event.write is not None and event.write.line is not None:
        label = "written again here" if event.form in ("list", "returned") else "and this moves it"
        spans.append(event.write.line.span("mutated", label, primary=event.taken is None))
    if event.used is not None:
        spans.append(event.used.span("needed", USED.get(event.form, "used here as if it were a copy")))
    if not spans:
        return None
    return finding(
        globals(),
        _message(event),
        spans,
        why=WHY[event.form],
        fixes=FIXES_BY_FORM[event.form],
        certainty=event.certainty,
        cause=_cause(event),
    )


def _cause(event: AliasedSnapshot) -> tuple[object, ...]:
    """What one line has taken and another has written is one mistake, under whatever names it is met."""
    if event.taken is None or event.write is None or event.write.line is None:
        return ()
    taken, written = event.taken.place, event.write.line.place
    return CODE, taken.path, taken.line, written.path, written.line


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)


def _message(event: AliasedSnapshot) -> str:
    name, other = event.memory.quoted, f"`{event.other}`"
    return {
        "list": f"{other} holds the memory of {name} {event.entries} times: all its entries are one tensor",
        "module": f"{name} is {other} itself, not a copy: every step moves both",
        "memory": f"{name} has the memory of {other} as its own, not a copy: every step moves both",
        "difference": f"{name} holds {event.other} themselves, not copies: every step moves them, too",
        "operand": f"{name} and {other} are one memory: whatever was written, they are compared with themselves",
        "itself": f"{name} and {other} are one memory, which is written onto itself: nothing is restored or averaged",
        "returned": f"{name} is the buffer that {other} writes again: the call replaces what an earlier one returned",
        "alias": f"{name} is a second name of {other}, not a copy: the write to the one changes the other",
        "default": f"{name} is {other} itself, the default of an argument: every step moves both",
        "momenta": f"{name} has the state of {other} as its own, not a copy: both optimizers move it",
        "layers": f"{name} holds one layer {event.entries} times: all its entries share their weights",
        "state_dict": f"{name} shares memory with the {event.other or 'model'}, and "
        f"{'it has stepped' if event.other else 'the model was trained'} after it was taken",
    }[event.form]


TAKEN = {
    "state_dict": "taken here: no tensor is copied",
    "difference": "taken here: no tensor is copied",
    "module": "the same module gets a second name here",
    "memory": "two become one memory here",
    "list": "kept here without a copy",
    "operand": "taken here without a copy",
    "itself": "taken here without a copy",
    "returned": "returned here: no copy is made",
    "alias": "a second name is given here, no copy is made",
    "layers": "one layer is put here several times",
    "default": "made here, once for all calls",
    "momenta": "loaded here: no tensor is copied",
}
USED = {
    "list": "and the entries are read here",
    "operand": "compared with itself here",
    "itself": "written onto itself here",
    "returned": "the first result is read here, replaced",
    "alias": "and read here as if it had not been written",
}
WHY = {
    "state_dict": "state_dict() returns the memory itself, no copies of it",
    "difference": "the list holds the parameters, which the optimizer writes in place",
    "module": "Module.to() and plain assignment return the module itself",
    "memory": "nn.Parameter(t), `a.data = b.data` and copy.copy(module) share memory; they copy nothing",
    "list": "a container keeps a reference to a tensor's memory, which is written again in place",
    "operand": "detach(), .data, numpy() and plain assignment share the memory of what they are taken from",
    "itself": "both names lead to the same bytes, so that each step moves the copy along",
    "returned": "a function that fills and returns one buffer hands out the same memory every time",
    "alias": "assignment binds a name; both names lead to one tensor, and an in-place op changes it for both",
    "momenta": "Optimizer.load_state_dict() keeps the tensors that it is given",
    "default": "a default is made once, when the function is defined: who is built without one has that layer",
    "layers": "`[layer] * n` repeats the reference, not the layer",
}
COPY = (idea("copy: .clone(), or .copy() of an array"),)
FIXES_BY_FORM: dict[str, tuple[Fix, ...]] = {
    "state_dict": (idea("copy it: copy.deepcopy(model.state_dict())"),),
    "difference": (idea("[p.detach().clone() for p in model.parameters()]"),),
    "module": (idea("copy.deepcopy(model)"),),
    "memory": (idea("copy the values: t.clone(), a.data.copy_(b.data), copy.deepcopy(module)"),),
    "list": (idea("keep a copy: .append(x.clone())"),),
    "operand": COPY,
    "itself": COPY,
    "returned": (idea("return a copy: return self.buffer.clone()"), *COPY),
    "alias": COPY,
    "momenta": (idea("copy it: load_state_dict(copy.deepcopy(other.state_dict()))"),),
    "default": (idea("use None as the default, and make the layer inside the function"),),
    "layers": (idea("make a layer for each entry: [make_layer() for _ in range(n)]"),),
}
