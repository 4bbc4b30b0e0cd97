"""Several ranks have wrapped one and the same weights in DDP.

What it is. A model among the arguments of `mp.spawn` or `Process` is put into shared memory on the way, so that all
ranks get the same weights, not a copy each.

What goes wrong. Every rank's optimizer steps the same memory: with two ranks each step is made twice, in a race.

How to fix. Make the model inside the rank, or copy it there: `model = copy.deepcopy(model)`.

When to ignore. Never.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import SharedMemory
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS433"
NAME = "ddp-on-shared-weights"
LEVEL = "error"

BAD = """
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def work(rank, net, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    ddp = DDP(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1.0)
    ddp(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    import tempfile

    net = torch.nn.Linear(3, 1)
    mp.spawn(work, args=(net, tempfile.mktemp()), nprocs=2)  # <- TS433
"""

GOOD = """
import copy

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def work(rank, net, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    ddp = DDP(copy.deepcopy(net))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1.0)
    ddp(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    import tempfile

    net = torch.nn.Linear(3, 1)
    mp.spawn(work, args=(net, tempfile.mktemp()), nprocs=2)
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, SharedMemory) or event.form != "ddp":
        return None
    spans = [event.line.span("cause", "all ranks get the same memory", primary=True)]
    if event.other is not None and event.other.place != event.line.place:
        spans.append(event.other.span("needed", "wrapped here by each rank"))
    return finding(
        globals(),
        f"{event.detail} ranks train one and the same weights ({event.memory.quoted}), not a replica each",
        spans,
        why="tensors that are sent to another process are put into shared memory",
        fixes=(idea("make or copy the model inside each rank"),),
    )
