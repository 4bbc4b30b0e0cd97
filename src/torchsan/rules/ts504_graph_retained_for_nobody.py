"""`retain_graph=True`, and no later backward came back to the graph.

What it is. `backward(retain_graph=True)` leaves the saved values in place for another pass through the same graph. In
the run that was watched there was no such pass.

What goes wrong. The numbers are right. Saved values live on until the last tensor of the graph is gone, so that two
steps can be in memory at a time; and where a state is carried on, the error that would have told of it does not come.
Told by `torchsan run --memory` only.

How to fix. Leave `retain_graph=True` out.

When to ignore. When a branch that this run did not take needs the graph again.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.memory import size
from torchsan.model.memory_events import GraphRetained
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS504"
NAME = "graph-retained-for-nobody"
LEVEL = "note"
DEFAULT = False

BAD = """
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(8, 4)).exp().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)  # <- TS504
    optimizer.step()
"""

GOOD = """
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    out = model(torch.randn(8, 4)).exp()
    optimizer.zero_grad()
    out.mean().backward(retain_graph=True)
    out.amax().backward()
    optimizer.step()
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, GraphRetained):
        return None
    times = "once" if event.times == 1 else f"{event.times} times"
    return finding(
        globals(),
        f"the graph was retained {times} and no backward came back to it; it keeps {size(event.bytes)}",
        [event.backward.span("cause", "keeps the graph for another pass", primary=True)],
        fixes=(idea("leave `retain_graph=True` out"),),
    )
