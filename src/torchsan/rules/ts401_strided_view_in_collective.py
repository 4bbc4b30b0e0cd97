"""A collective is given a view whose memory has gaps or overlaps.

What it is. A slice of columns, every second element, an expanded tensor: its elements do not lie side by side. Some
backends take the first `numel` elements of memory as they lie there.

What goes wrong. On gloo, `all_reduce`, `broadcast`, `reduce`, `scatter` and the output of `all_to_all_single` read and
write the wrong elements, most of them those of the tensor that the view was taken from, and nothing is raised. An
expanded tensor can crash the process. Ranks that give the same shape in different layouts mix their elements up.

How to fix. Reduce a contiguous copy and copy it back: `c = x[:, 0].contiguous(); dist.all_reduce(c); x[:, 0] = c`.

When to ignore. Never: the numbers are wrong.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import StridedCollective
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS401"
NAME = "strided-view-in-collective"
LEVEL = "error"
RANKS = 2

BAD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
table = torch.arange(12.0).reshape(3, 4)
dist.all_reduce(table[:, 0])  # <- TS401
dist.destroy_process_group()
"""

GOOD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
table = torch.arange(12.0).reshape(3, 4)
column = table[:, 0].contiguous()
dist.all_reduce(column)
table[:, 0] = column
dist.destroy_process_group()
"""


SAID = {
    "gaps": "has gaps in memory (strides {}): the elements in between are taken instead",
    "overlap": "is expanded (strides {}): memory behind its end is written",
    "layouts": "lies in memory in another order on each rank ({}): elements are mixed up",
}

FIXES = (("mutated", "contiguous_and_back"),)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, StridedCollective):
        return None
    return finding(
        globals(),
        f"{event.memory.quoted}, given to `{event.op}`, {SAID[event.form].format(event.strides)}",
        [event.called.span("mutated", "memory is taken as it lies there", primary=True)],
        why="gloo works on the first numel elements of memory, whatever the strides say",
        fixes=(idea("give it a contiguous copy, and copy the result back"),),
    )
