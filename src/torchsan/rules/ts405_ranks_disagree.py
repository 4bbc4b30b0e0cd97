"""The same call of a group is another one on another rank.

What it is. Collectives are matched by their order: the first call of a group on one rank meets the first on all others.
They must be the same op, with as many elements of the same type, the same reduction and the same source, in the same
order on all ranks.

What goes wrong. Backends do not compare notes. Sums of different tensors are mixed up in silence, memory is
overwritten, the process is aborted, or all ranks wait for ever.

How to fix. Take collectives out of branches and loops that depend on the rank or on its data; go through names in a
fixed order (`sorted(...)`), never in that of a set; give every rank as many batches, or use DDP's `join()`.

When to ignore. Never.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import RanksDisagree
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS405"
NAME = "ranks-disagree"
LEVEL = "error"
RANKS = 2

BAD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
totals = {"loss": torch.ones(4), "norm": torch.full((4,), 5.0)}
for name in ["loss", "norm"] if rank == 0 else ["norm", "loss"]:
    dist.all_reduce(totals[name])  # <- TS405
dist.destroy_process_group()
"""

GOOD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
totals = {"loss": torch.ones(4), "norm": torch.full((4,), 5.0)}
for name in sorted(totals):
    dist.all_reduce(totals[name])
dist.destroy_process_group()
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, RanksDisagree):
        return None
    first, *others = event.stands
    if first.line is None:
        return None
    spans = []
    if event.loop is not None:
        spans.append(event.loop.span("cause", "a rank goes round once more than another", primary=True))
    for stand in event.stands:
        if stand.line is not None:
            primary = stand is first and event.loop is None
            spans.append(stand.line.span("cause", f"rank {stand.rank}: {stand.what}", primary=primary))
    there = ", ".join(f"{stand.what} on rank {stand.rank}" for stand in others[:3])
    said = "meets" if event.form == "call" else "is in another order: it meets"
    return finding(
        globals(),
        f"{first.what} on rank {first.rank} {said} {there}",
        spans,
        why="collectives of a group are matched by their order; nothing else tells which belong together",
        fixes=(idea("make the same calls in the same order on every rank"),),
    )
