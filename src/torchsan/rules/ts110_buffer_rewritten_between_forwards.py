"""A buffer that one forward saved was rewritten by the next one, before backward.

What it is. Some modules write their own buffers while they run: batch norm its statistics, spectral norm its
vectors, DDP broadcasts all of them. Two forwards followed by one backward (real and fake batch of a GAN, two views
of a contrastive loss) leave the first forward with the second one's buffers.

What goes wrong. Torch raises "one of the variables needed for gradient computation has been modified by an inplace
operation"; for batch norm statistics saved in eval mode it raises nothing and the gradient is wrong.

How to fix. Save a copy (`u = self.u.clone()` before it enters the graph), run both batches in one forward, or call
backward after each forward.

When to ignore. Never: the first forward's gradient is computed with the second one's buffers.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding
from torchsan.model.events import StaleSave
from torchsan.rules import finding
from torchsan.rules.wording import idea, stale_spans, versions, why_kept, write_words

CODE = "TS110"
NAME = "buffer-rewritten-between-forwards"
LEVEL = "error"

BAD = """
import torch


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        with torch.no_grad():
            self.scale.mul_(0.9)  # <- TS110
        return (self.weight * self.scale * x).sum()


net = Scaled()
loss = net(torch.ones(3)) + net(torch.zeros(3))
loss.backward()
"""

GOOD = """
import torch


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        with torch.no_grad():
            self.scale.mul_(0.9)
        return (self.weight * self.scale.clone() * x).sum()


net = Scaled()
loss = net(torch.ones(3)) + net(torch.zeros(3))
loss.backward()
"""

FIXES = (("saved", "clone_saved"), ("mutated", "out_of_place"))


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, StaleSave) or event.memory.kind != "buffer":
        return None
    if event.write.kind in ("optimizer", "foreign", "data", "set_data"):
        return None
    silent = event.silent
    return finding(
        globals(),
        f"the buffer {event.memory.quoted} was rewritten by {write_words(event.write)} before this backward needed it",
        stale_spans(event, f"rewritten here{versions(event)}"),
        why=why_kept(event.save),
        notes=("no error is raised for this: the gradient is computed with the new statistics",) if silent else (),
        fixes=(
            idea("use a clone of the buffer in the computation"),
            idea("run both batches in one forward, or call backward before the next forward"),
        ),
    )


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)
