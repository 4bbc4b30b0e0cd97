"""A backward went into a part of the graph that an earlier backward had already used up.

What it is. `backward()` releases saved values as it goes. A tensor carried from one iteration to the next (a hidden
state, a running loss, features computed once outside the loop) connects the new graph with the released one.

What goes wrong. Torch raises "Trying to backward through the graph a second time" and suggests `retain_graph=True`,
which makes memory and time grow with every iteration, and after an optimizer step fails with TS105.

How to fix. Detach what is carried over (`hidden = hidden.detach()`), add losses up before one backward, or compute
the shared part again in each iteration.

When to ignore. Never: the program stops here.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding, Span
from torchsan.model.events import GraphReused
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS111"
NAME = "graph-used-twice"
LEVEL = "error"

BAD = """
import torch

cell = torch.nn.RNNCell(3, 4)
hidden = torch.zeros(2, 4)
for step in range(2):
    hidden = cell(torch.ones(2, 3), hidden)
    hidden.pow(2).sum().backward()  # <- TS111
"""

GOOD = """
import torch

cell = torch.nn.RNNCell(3, 4)
hidden = torch.zeros(2, 4)
for step in range(2):
    hidden = cell(torch.ones(2, 3), hidden.detach())
    hidden.pow(2).sum().backward()
"""

FIXES = (("needed", "detach_carried"), ("cause", "retained_graph"), ("needed", "rebuild"))


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, GraphReused):
        return None
    spans: list[Span] = []
    if event.line is not None:
        spans.extend(event.line.spans("origin", f"this part of the graph (`{event.op}`) was built here"))
    same = event.first is not None and event.needed is not None and event.first.place == event.needed.place
    if event.first is not None and not same:
        spans.append(event.first.span("cause", "an earlier backward used it up here"))
    if event.needed is not None:
        spans.append(event.needed.span("needed", "this backward goes through it again", primary=True))
    carried = f", carried over by {event.carried.quoted}" if event.carried else ""
    return finding(
        globals(),
        f"backward goes a second time through a graph that is already used up{carried}",
        spans,
        why="a backward frees the values that it needed; they are not there for another one",
        fixes=(
            idea("detach what goes from one iteration to the next"),
            idea("add the losses up and call backward once"),
        ),
    )


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)
