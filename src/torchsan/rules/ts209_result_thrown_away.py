"""The result of an operation is thrown away.

What it is. `x.clamp(0, 1)`, `torch.relu(h)` and `outputs.permute(1, 0)` return a new tensor and leave the old one as
it was. Standing alone on a line they do nothing.

What goes wrong. Nothing is raised. The program goes on with the values, or the order of dimensions, that the line was
meant to change.

How to fix. Bind the result (`x = x.clamp(0, 1)`), or use the in-place form (`x.clamp_(0, 1)`) where nothing needs the
old values.

When to ignore. Where the call is made to be timed, or to see whether it raises.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding
from torchsan.model.events import ResultDropped
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS209"
NAME = "result-thrown-away"
LEVEL = "warning"

BAD = """
import torch

weight = torch.randn(4, 3)
weight.clamp(min=0)  # <- TS209
print(weight.sqrt().sum())
"""

GOOD = """
import torch

weight = torch.randn(4, 3)
weight = weight.clamp(min=0)
print(weight.sqrt().sum())
"""

FIXES = ()


def check(fact: Any, flow: Any) -> Finding | None:
    event = fact.event
    if not isinstance(event, ResultDropped) or event.line is None:
        return None
    what = event.memory.quoted if event.memory.name else "its argument"
    made = finding(
        globals(),
        f"the result of `{event.op}` is thrown away: {what} is as it was",
        [event.line.span("cause", "returns a new tensor, which nothing keeps", primary=True)],
        why=f"`{event.op}` changes nothing in place",
        fixes=(idea(f"bind the result: {event.memory.name or 'x'} = …"),),
    )
    return stated(made, fact)
