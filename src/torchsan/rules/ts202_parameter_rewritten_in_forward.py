"""A forward pass replaces the data of its own parameter.

What it is. `self.weight.data = …` inside `forward` gives the parameter other memory at every call. What the
optimizer learnt in the step before is thrown away, and no error is raised.

What goes wrong. The parameter receives gradients and steps, and starts every forward from the assigned value again.
Captured models freeze or drop the assignment (TS308), or fail.

How to fix. Compute with a local value (`weight = torch.zeros_like(self.weight)`); keep state that is not learnt in
a buffer; do initialisation in `__init__`.

When to ignore. When the parameter is never trained; then make it a buffer.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding
from torchsan.model.events import ParameterRewritten
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS202"
NAME = "parameter-rewritten-in-forward"
LEVEL = "warning"

BAD = """
import torch


class Fixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        self.shift.data = torch.zeros(3)  # <- TS202
        return x + self.shift


fixed = Fixed()
for _ in range(2):
    fixed(torch.ones(3)).sum().backward()
"""

GOOD = """
import torch


class Fixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.zeros(3))
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.scale + self.shift


Fixed()(torch.ones(3)).sum().backward()
"""

FIXES = (("mutated", "local_value"),)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, ParameterRewritten) or event.write.line is None:
        return None
    return finding(
        globals(),
        f"{event.memory.quoted} is a parameter, and the forward of {event.module} replaces its data at every call",
        event.write.line.spans("mutated", "replaced here, whatever the optimizer did to it", primary=True),
        why="the next forward starts from the assigned value again, so what was learnt is lost",
        fixes=(idea("compute with a local tensor, or keep the value in a buffer"),),
    )


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)
