"""A rank waited in a collective until the run was ended, and another rank never came.

What it is. A collective is over when all ranks of its group have called it. One that only some ranks reach (an early
`return`, an exception that was caught, a branch on the rank, a loop that ended sooner) never is.

What goes wrong. The run hangs, often for half an hour, and then a timeout is reported by a rank that did nothing wrong.

How to fix. Let every rank of the group reach the call, or give the call a group of those that do.

When to ignore. Never.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import RankStuck
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS406"
NAME = "rank-left-waiting"
LEVEL = "error"
RANKS = 2

BAD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
loss = torch.ones(4)
if rank == 0:
    dist.all_reduce(loss)  # <- TS406
else:
    import time
    time.sleep(100)
"""

GOOD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
loss = torch.ones(4)
dist.all_reduce(loss)
if rank == 0:
    print(loss)
dist.destroy_process_group()
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, RankStuck):
        return None
    waiting = next((stand for stand in event.stands if stand.waits and stand.line is not None), None)
    if waiting is None or waiting.line is None:
        return None
    spans = [waiting.line.span("cause", f"rank {waiting.rank} waits here: {waiting.what}", primary=True)]
    for stand in event.stands:
        if stand is not waiting and stand.line is not None:
            spans.append(stand.line.span("cause", f"rank {stand.rank} {'waits' if stand.waits else 'stands'} here"))
    absent = [stand for stand in event.stands if not stand.waits]
    missing = ", ".join(f"rank {stand.rank} ({stand.what})" for stand in absent[:4])
    return finding(
        globals(),
        f"rank {waiting.rank} waits in {waiting.what}, and {missing} never comes",
        spans,
        why="a collective is over when every rank of its group has called it",
        fixes=(idea("let every rank of the group reach this call"),),
    )
