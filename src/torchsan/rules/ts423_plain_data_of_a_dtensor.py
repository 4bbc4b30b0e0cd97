"""A plain tensor is assigned to `.data` of a DTensor: nothing changes.

What it is. The values of a DTensor are in its local tensor. `p.data = t` with a plain `t` sets memory of the wrapper
that nobody looks at.

What goes wrong. The parameter keeps its old values, and nothing is raised.

How to fix. Distribute the new value (`distribute_tensor(t, p.device_mesh, p.placements)`) and copy it, or copy into
`p.to_local()` what belongs to this rank.

When to ignore. Never: the assignment has no effect.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.rules._sharding import told

CODE = "TS423"
NAME = "plain-data-of-a-dtensor"
LEVEL = "error"
RANKS = 2

BAD = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
net = torch.nn.Linear(4, 4, bias=False)
fully_shard(net, mesh=mesh)
net.weight.data = torch.zeros(4, 4)  # <- TS423
dist.destroy_process_group()
"""

GOOD = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
net = torch.nn.Linear(4, 4, bias=False)
fully_shard(net, mesh=mesh)
with torch.no_grad():
    net.weight.zero_()
dist.destroy_process_group()
"""


SAID = {
    "plain-data": (
        "a plain tensor is assigned to `.data` of a DTensor: its values stay as they were",
        "has no effect",
        "",
        "the values of a DTensor are in its local tensor; `.data` of the wrapper is not looked at",
        "copy a distributed tensor into it instead",
    ),
    "lost-data": (
        "assigning to `.data` of a DTensor changes nothing: its values stay as they were",
        "has no effect",
        "",
        "the values of a DTensor are in its local tensor; `.data` of the wrapper is not looked at",
        "copy the values: `with torch.no_grad(): p.copy_(value)`",
    ),
}


def judge(event: Any, history: Any) -> Finding | None:
    return told(globals(), SAID, event)
