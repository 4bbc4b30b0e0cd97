"""Weights that should be equal on all ranks are not.

What it is. Data-parallel training keeps a replica of the model on each rank and averages gradients. That keeps replicas
equal only if they began equal and every rank does the same to them: the same writes, the same settings of the
optimizer, no step on gradients that were not averaged.

What goes wrong. Each rank trains a model of its own on gradients of another's; the loss still falls, and the checkpoint
of rank 0 is not what was evaluated. Nothing is raised.

How to fix. Set the same seed before the model is made, or broadcast its weights; load checkpoints before DDP wraps the
model, or on every rank; write the same values on all ranks; step outside of `no_sync()`.

When to ignore. When replicas are meant to differ. Averaging them now and then (local SGD, outer optimizers) is
understood: weights that the program makes equal again are not told.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import ReplicasDiverged
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS410"
NAME = "replicas-diverged"
LEVEL = "error"
RANKS = 2

BAD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)  # <- TS410
net = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    net(torch.randn(4, 3)).square().mean().backward()
    for p in net.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
    optimizer.step()
dist.destroy_process_group()
"""

GOOD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
net = torch.nn.Linear(3, 2)
with torch.no_grad():
    for p in net.parameters():
        dist.broadcast(p, 0)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    net(torch.randn(4, 3)).square().mean().backward()
    for p in net.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
    optimizer.step()
dist.destroy_process_group()
"""


CAUSES = {
    "written": ("written here", "write the same value on every rank, or broadcast it afterwards"),
    "settings": ("the optimizer's settings differ", "give the optimizer the same settings on every rank"),
    "unsynced": ("this step uses gradients of one rank alone", "step after a backward outside of no_sync()"),
    "skipped": (
        "some ranks make this step and others pass it over",
        "let all ranks decide together: reduce what the decision hangs on",
    ),
    "start": ("they are different from the start", "set one seed before the model is made, or broadcast its weights"),
    "unknown": ("they differ after this step", "compare what each rank does to the weights before this line"),
    "unmanaged": ("DDP does not know this parameter", "wrap the model after it is complete"),
}

FIXES = (("cause", "load_before_wrapping"),)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, ReplicasDiverged):
        return None
    said, advice = CAUSES[event.cause]
    spans = [event.line.span("cause", said, primary=True)]
    if event.seen is not None and event.seen.place.line != event.line.place.line:
        spans.append(event.seen.span("needed", "stepped here, on every rank its own"))
    names = ", ".join(f"`{name}`" for name in event.names[:3]) + (", …" if len(event.names) > 3 else "")
    return finding(
        globals(),
        f"the ranks no longer hold the same weights: {names}",
        spans,
        why="averaged gradients keep replicas equal only if they began equal and every rank does the same to them",
        notes=(event.detail,) if event.detail else (),
        # That they differ is sure; that this line has to do with it is not.
        certainty="possible" if event.cause == "unknown" else "proved",
        fixes=(idea(advice),),
    )
