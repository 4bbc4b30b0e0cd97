"""Ranks treat their parts or copies of one DTensor differently.

What it is. A replicated DTensor promises that all ranks hold the same values; `DTensor.from_local` takes each rank's
word for it. The local part of a sharded one is a piece of the whole: a norm, a maximum or a mean of it is that of the
piece.

What goes wrong. Replicas that differ from the start stay different; parts that are scaled each by its own number are no
longer one tensor. Nothing is raised.

How to fix. Broadcast before `from_local`, or use `distribute_tensor`; compute statistics of the DTensor itself, not of
`to_local()`.

When to ignore. When each part is meant to be treated for itself.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.rules._sharding import told

CODE = "TS422"
NAME = "parts-of-a-dtensor-differ"
LEVEL = "error"
RANKS = 2

BAD = """
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate

dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
rank = dist.get_rank()
local = torch.full((4,), float(rank))
whole = DTensor.from_local(local, mesh, [Replicate()])  # <- TS422
print(whole.sum().to_local())
dist.destroy_process_group()
"""

GOOD = """
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate

dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
rank = dist.get_rank()
local = torch.full((4,), float(rank))
dist.broadcast(local, 0)
whole = DTensor.from_local(local, mesh, [Replicate()])
print(whole.sum().to_local())
dist.destroy_process_group()
"""


SAID = {
    "replicas-differ": (
        "`from_local` is given other values on another rank, and told that they are replicas",
        "not the same on all ranks",
        "",
        "from_local takes each rank's word for it; nothing is compared or sent",
        "broadcast the local tensor first, or use distribute_tensor",
    ),
    "replicas-parted": (
        "a replicated tensor is written through its local part, by other values on another rank",
        "not the same on all ranks",
        "read here, as if it were one tensor",
        "to_local() is this rank's copy; nothing keeps the copies equal",
        "reduce or broadcast what is written, so that all ranks write the same",
    ),
    "parts-differ": (
        "each rank changes its part of a sharded tensor by a number of its own: {1}",
        "by another number on each rank",
        "the number is computed here",
        "a statistic of to_local() is that of one part; the whole needs one number for all",
        "compute the number from the DTensor itself",
    ),
}


def judge(event: Any, history: Any) -> Finding | None:
    return told(globals(), SAID, event)
