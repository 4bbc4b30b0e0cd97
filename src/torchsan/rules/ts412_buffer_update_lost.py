"""A rank's own update of a buffer is replaced by rank 0's before the next forward.

What it is. DDP sends rank 0's buffers to all ranks before each forward (`broadcast_buffers=True`). A buffer in which
each rank counts or collects something of its own is overwritten there.

What goes wrong. What all ranks but the first have added is lost, and nothing is raised.

How to fix. Sum the counts over the ranks (`dist.all_reduce`), keep them in a plain attribute, or build DDP with
`broadcast_buffers=False`.

When to ignore. When only rank 0's count matters; running averages such as batch norm's are not reported.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import BufferUpdateLost
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS412"
NAME = "buffer-update-lost"
LEVEL = "warning"
RANKS = 2

BAD = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x):
        self.seen[rank] += len(x)  # <- TS412
        return self.layer(x)


torch.manual_seed(0)
ddp = DDP(Counting())
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    ddp(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""

GOOD = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x):
        self.seen[rank] += len(x)
        return self.layer(x)


torch.manual_seed(0)
ddp = DDP(Counting(), broadcast_buffers=False)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    ddp(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, BufferUpdateLost):
        return None
    return finding(
        globals(),
        f"what this rank adds to the buffer {event.memory.quoted} is overwritten by rank 0's at the next forward",
        [
            event.written.span("mutated", "updated here, on this rank", primary=True),
            event.broadcast.span("cause", "replaced here by what rank 0 has"),
        ],
        why="DDP sends rank 0's buffers to all ranks before each forward",
        fixes=(
            idea("sum the buffer over the ranks where it is read"),
            idea("build DDP with broadcast_buffers=False"),
        ),
    )
