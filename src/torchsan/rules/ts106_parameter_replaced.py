"""A tensor was assigned where the module has a parameter.

What it is. `self.weight = self.weight + x` asks the module to put a computed tensor in the place of its parameter.
A computed tensor is not a parameter: the optimizer would not know it and it would keep its whole graph alive.

What goes wrong. The module refuses with a TypeError: "cannot assign 'torch.FloatTensor' as parameter 'weight'".

How to fix. Give the computed value a name of its own (`weight = self.weight + x`). To really change the parameter,
write it in place inside `with torch.no_grad(): self.weight.copy_(…)`.

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

CODE = "TS106"
NAME = "parameter-replaced"
LEVEL = "error"

BAD = """
import torch


class Shift(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x):
        self.weight = self.weight + x  # <- TS106
        return self.weight


Shift()(torch.ones(3)).sum().backward()
"""

GOOD = """
import torch


class Shift(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x):
        weight = self.weight + x
        return weight


Shift()(torch.ones(3)).sum().backward()
"""

FIXES = (("mutated", "local_value"), ("mutated", "copy_into"))


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, RefusedWrite) or event.reason != "parameter-replaced":
        return None
    name = event.memory.name
    local = name.rpartition(".")[2] or "value"
    return finding(
        globals(),
        f"`{name}` is a parameter, and a computed tensor is assigned to it",
        refusal_spans(event, "assigned here"),
        why="a module's parameter can only be replaced by a Parameter; a computed tensor has a graph behind it",
        fixes=(
            idea(f"use a local variable: {local} = …"),
            idea(f"to update the parameter: with torch.no_grad(): {name}.copy_(…)"),
        ),
    )


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)
