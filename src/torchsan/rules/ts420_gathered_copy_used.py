"""FSDP's gathered copy of a parameter is written or kept, and FSDP frees it.

What it is. For a forward FSDP gathers the parts of each parameter into one copy, and frees that memory afterwards. The
parameter that lasts is the sharded one.

What goes wrong. A write into the copy (a clamp, a mask, a normalisation inside `forward`) is lost, and nothing is
raised. A view of it that is kept (`self.w = self.layer.weight.detach()`) points to memory that is gone; to read it
crashes the process.

How to fix. Write to the sharded parameter, outside of forward; keep a clone.

When to ignore. When the write is meant for this one forward.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.rules._sharding import told

CODE = "TS420"
NAME = "gathered-copy-used"
LEVEL = "error"
RANKS = 2

BAD = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
class Clamped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        with torch.no_grad():
            self.layer.weight.clamp_(-0.1, 0.1)  # <- TS420
        return self.layer(x)


net = Clamped()
fully_shard(net, mesh=mesh)
net(torch.ones(2, 4)).sum().backward()
dist.destroy_process_group()
"""

GOOD = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)


net = Plain()
fully_shard(net, mesh=mesh)
net(torch.ones(2, 4)).sum().backward()
with torch.no_grad():
    net.layer.weight.clamp_(-0.1, 0.1)
dist.destroy_process_group()
"""


SAID = {
    "lost-write": (
        "the write to {0} is lost: it goes into FSDP's gathered copy",
        "written here, into a copy",
        "the copy is freed here",
        "FSDP gathers a parameter for the forward and frees the copy; only the sharded parameter lasts",
        "write to the sharded parameter outside of forward",
    ),
    "kept": (
        "{0} looks into FSDP's gathered copy of `{1}`, whose memory is freed after the forward",
        "kept here",
        "freed by this call",
        "FSDP gives the memory of the copy back; a view of it that was kept points to nothing",
        "keep a clone",
    ),
}


def judge(event: Any, history: Any) -> Finding | None:
    return told(globals(), SAID, event)
