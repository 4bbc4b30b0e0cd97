"""The graph of every step is kept by one holder, so memory grows from step to step.

What it is. A tensor that came out of the model carries its graph: every op, and until a backward every saved value. A
running sum (`total += loss`), a list of losses, a hidden state that goes on to the next step or a closure that knows
an output holds that graph after the step is over.

What goes wrong. Nothing is raised until memory runs out. Each step adds its nodes, and without a backward its
activations, to what is already there; a carried state makes every backward longer than the last.

How to fix. Keep the number, not the tensor: `total += loss.item()`, `losses.append(loss.detach())`. Cut a carried state
where the window ends: `h = h.detach()`. Evaluate under `torch.no_grad()`.

When to ignore. When the growth is meant and bounded by something outside of the run that was watched. Windows of
backpropagation through time, accumulated losses that one backward uses, and inner loops of meta-learning let their
graphs go and are not reported.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.memory import size
from torchsan.model.memory_events import GraphKept
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS501"
NAME = "graph-kept-across-steps"
LEVEL = "warning"

FIXES = (("aliased", "detach_stored"), ("origin", "detach_handed_out"))

BAD = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = []
for step in range(12):
    loss = model(torch.randn(16, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss)  # <- TS501
print(sum(history).item())
"""

GOOD = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = []
for step in range(12):
    loss = model(torch.randn(16, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.detach())
print(sum(history).item())
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, GraphKept):
        return None
    label = "each entry keeps the graph it came from" if event.container else "carries the graphs of earlier steps on"
    holder = event.holder.quoted if event.holder.name else _unnamed(event)
    if event.container and event.made.place == event.held.place:
        label = f"made here with its graph, and kept in {holder}"
    spans = [event.held.span("aliased", label, primary=True)]
    if event.made.place != event.held.place:
        spans.append(event.made.span("origin", "the graph is made here"))
    return finding(
        globals(),
        f"{holder} keeps the graph of every step: {event.nodes_per_step:.0f} nodes more each time"
        + (f", {size(round(event.bytes_per_step))} of saved values with them" if event.bytes_per_step >= 1 else ""),
        spans,
        why=_why(event),
        fixes=(idea(_idea(event)),),
    )


def _unnamed(event: GraphKept) -> str:
    return "a container that is being built" if event.container else "a sum that is being made"


def _why(event: GraphKept) -> str:
    if event.used:
        return "a backward has used these graphs up; nothing can need them any more"
    return "a tensor holds its graph, and the graph all that it saved, until the tensor is gone"


def _idea(event: GraphKept) -> str:
    name = event.holder.name
    if not name:
        return "put `.item()` or `.detach()` of the value into it"
    if event.container:
        return f"store `.item()` or `.detach()` of the value in `{name}`"
    return f"add `.item()`, or carry `{name}.detach()` on to the next step"
