"""The optimizer was made before `fully_shard`, and holds parameters that are no longer the model's.

What it is. `fully_shard` replaces every parameter of a module by a sharded one. An optimizer that was made before holds
the old ones.

What goes wrong. Gradients go to the new parameters, the optimizer steps the old ones: nothing is trained, and nothing
is raised.

How to fix. Make the optimizer after `fully_shard`.

When to ignore. Never.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.rules._sharding import told

CODE = "TS421"
NAME = "optimizer-holds-replaced-parameters"
LEVEL = "error"
RANKS = 2

BAD = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)  # <- TS421
fully_shard(net, mesh=mesh)
net(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
"""

GOOD = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
net = torch.nn.Linear(4, 4)
fully_shard(net, mesh=mesh)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
"""


SAID = {
    "replaced": (
        "{0} holds parameters that `fully_shard` has replaced: its steps train nothing",
        "made here, with the parameters from before",
        "the parameters are replaced here",
        "fully_shard puts new, sharded parameters into the module; gradients go to those",
        "make the optimizer after fully_shard",
    ),
}

FIXES = (("cause", "optimizer_after_sharding"),)


def judge(event: Any, history: Any) -> Finding | None:
    return told(globals(), SAID, event)
