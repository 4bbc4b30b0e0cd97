"""A collective works on a copy that nobody has a name for: its result is thrown away.

What it is. `dist.all_reduce(x.contiguous())` reduces `x` in place only if `x` is contiguous already; else it reduces a
copy. The same goes for `x.float()`, `x.cpu()`, `x.clone()` and everything else that makes new memory. The functions of
`torch.distributed.nn.functional` and `torch.distributed._functional_collectives` never write their argument: they give
the result back.

What goes wrong. The program goes on with the values from before, and nothing is raised.

How to fix. Give the copy a name, reduce it, and use or copy back the result.

When to ignore. Where the collective serves as a barrier only; then `dist.barrier()` says so.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import ResultDropped
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS404"
NAME = "collective-result-dropped"
LEVEL = "error"
RANKS = 2

BAD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
x = torch.arange(12.0).reshape(3, 4).t()
dist.all_reduce(x.contiguous())  # <- TS404
print(x / world)
dist.destroy_process_group()
"""

GOOD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
x = torch.arange(12.0).reshape(3, 4).t()
x = x.contiguous()
dist.all_reduce(x)
print(x / world)
dist.destroy_process_group()
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, ResultDropped):
        return None
    if event.form == "returned":
        return finding(
            globals(),
            f"the result of `{event.op}` is thrown away: `{event.owner}` stays as it was",
            [event.called.span("cause", "gives the result back and leaves its argument alone", primary=True)],
            why="functional collectives write nothing, so that they can be differentiated: they return the result",
            fixes=(idea(f"go on with what {event.op} gives back"),),
        )
    return finding(
        globals(),
        f"the result of `{event.op}` is in a copy that is thrown away: `{event.owner}` stays as it was",
        [event.called.span("cause", f"`{event.expression}` is new memory here", primary=True)],
        why="a collective writes into the tensor that it is given; a temporary is gone when the call returns",
        fixes=(idea(f"name the copy, reduce it, and go on with it instead of {event.owner}"),),
    )
