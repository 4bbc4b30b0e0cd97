"""A gradient that was kept is a piece of DDP's bucket, which the next backward fills anew.

What it is. With `gradient_as_bucket_view=True`, `p.grad` is a view of the memory in which DDP adds gradients up. It is
the same memory in every iteration.

What goes wrong. A gradient that is kept from one iteration to the next (to compare, to accumulate, to log) silently
becomes that of the next one.

How to fix. Keep a copy: `kept = p.grad.clone()`.

When to ignore. Never, if the kept value is read after the next backward.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import KeptGradient
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS413"
NAME = "kept-gradient-in-bucket"
LEVEL = "error"
RANKS = 2

BAD = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
ddp = DDP(net, gradient_as_bucket_view=True)
first = None
for step in range(3):
    ddp(torch.randn(4, 3)).square().mean().backward()
    if first is None:
        first = net.weight.grad  # <- TS413
print((first - net.weight.grad).abs().max())
dist.destroy_process_group()
"""

GOOD = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
ddp = DDP(net, gradient_as_bucket_view=True)
first = None
for step in range(3):
    ddp(torch.randn(4, 3)).square().mean().backward()
    if first is None:
        first = net.weight.grad.clone()
print((first - net.weight.grad).abs().max())
dist.destroy_process_group()
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, KeptGradient):
        return None
    spans = []
    if event.kept is not None:
        spans.append(event.kept.span("aliased", "kept here: a view of DDP's bucket", primary=True))
    spans.append(event.overwritten.span("mutated", "filled anew by the backward of this", primary=event.kept is None))
    return finding(
        globals(),
        f"`{event.holder}` holds the gradient of {event.memory.quoted} itself: the next backward overwrites it",
        spans,
        why="with gradient_as_bucket_view=True gradients lie in buckets that every iteration uses again",
        fixes=(idea("keep a clone of the gradient"),),
    )
