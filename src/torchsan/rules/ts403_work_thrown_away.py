"""The Work of an asynchronous collective is thrown away, and its tensor is used.

What it is. With `async_op=True` (and `isend`, `irecv`) the call returns a Work, the only means to know when the
collective is done. A call whose result is not kept, or whose Work is never waited for, cannot be waited for.

What goes wrong. Whoever reads the tensor afterwards gets the old value, the new one or a mixture, as timing has it.

How to fix. Keep the Work and call `wait()` before the tensor is used, or leave out `async_op=True`.

When to ignore. Never; a run that went well was lucky.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import TouchedInFlight
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS403"
NAME = "work-thrown-away"
LEVEL = "error"
RANKS = 2

BAD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
gradient = torch.full((1_000,), float(rank))
dist.all_reduce(gradient, async_op=True)  # <- TS403
print((gradient / world).shape)
dist.barrier()
dist.destroy_process_group()
"""

GOOD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
gradient = torch.full((1_000,), float(rank))
work = dist.all_reduce(gradient, async_op=True)
work.wait()
print((gradient / world).shape)
dist.barrier()
dist.destroy_process_group()
"""

FIXES = (("cause", "wait_at_once"),)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, TouchedInFlight) or event.waited:
        return None
    done = "written" if event.writes else "read"
    return finding(
        globals(),
        f"nobody waits for `{event.op}`, and {event.memory.quoted} is {done} as if it were done",
        [
            event.called.span("cause", "its Work is never waited for", primary=True),
            event.touched.span("mutated" if event.writes else "needed", f"{done} here"),
        ],
        why="only wait() on the Work that the call returned tells when the result is there",
        fixes=(idea("keep the Work and wait() for it before the tensor is used, or leave out async_op=True"),),
    )
