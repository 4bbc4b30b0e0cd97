"""An optimizer steps again and again, and none of its parameters ever has a gradient.

What it is. The optimizer holds tensors that the loss does not depend on: the parameters of a model from before it was
wrapped, sharded, copied or moved, or of another model.

What goes wrong. `step()` skips parameters without a gradient, so nothing is trained, and nothing is raised.

How to fix. Give the optimizer the parameters of the model that runs, after it has got its final form.

When to ignore. Never: such a step does nothing.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import StepWithoutGradients
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS414"
NAME = "step-without-gradients"
LEVEL = "warning"

BAD = """
import copy

import torch

net = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net = copy.deepcopy(net)
for step in range(3):
    net(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()  # <- TS414
"""

GOOD = """
import copy

import torch

net = torch.nn.Linear(3, 2)
net = copy.deepcopy(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    net(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, StepWithoutGradients):
        return None
    spans = [event.step.span("needed", "nothing to step: no parameter has a gradient", primary=True)]
    if event.made is not None:
        spans.append(event.made.span("origin", "made here, with these parameters"))
    return finding(
        globals(),
        f"`{event.optimizer}.step()` does nothing: none of its parameters has had a gradient so far",
        spans,
        why="backward fills the gradients of the tensors that the loss depends on; the optimizer holds others",
        fixes=(idea("make the optimizer from the parameters of the model that runs, after it has its final form"),),
    )
