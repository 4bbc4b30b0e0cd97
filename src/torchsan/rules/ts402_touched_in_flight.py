"""Memory of an asynchronous collective is touched before anybody has waited for it.

What it is. `work = dist.all_reduce(t, async_op=True)` returns at once; a thread reads and writes `t` meanwhile. Until
`work.wait()` has returned, `t` holds neither the old value nor the new one.

What goes wrong. A read gets a mixture; a write is added up, overwritten, or sent instead of the value that was meant.
It depends on timing, and nothing is raised.

How to fix. Call `work.wait()` before the line that touches the tensor; let other work stand between the two.

When to ignore. Never; a run that went well was lucky.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import TouchedInFlight
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS402"
NAME = "touched-in-flight"
LEVEL = "error"
RANKS = 2

BAD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
total = torch.full((1_000,), float(rank))
work = dist.all_reduce(total, async_op=True)
mean = total / world  # <- TS402
work.wait()
dist.destroy_process_group()
"""

GOOD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
total = torch.full((1_000,), float(rank))
work = dist.all_reduce(total, async_op=True)
other = torch.ones(10).sum()
work.wait()
mean = total / world
dist.destroy_process_group()
"""

FIXES = (("needed", "wait_first"), ("mutated", "wait_first"))


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, TouchedInFlight) or not event.waited:
        return None
    done = "written" if event.writes else "read"
    spans = [
        event.called.span("cause", "begins here and goes on in the background"),
        event.touched.span("mutated" if event.writes else "needed", f"{done} before it is done", primary=True),
    ]
    if event.written is not None and event.written.place.line != event.touched.place.line:
        spans.append(event.written.span("mutated", "written before it is done"))
    return finding(
        globals(),
        f"{event.memory.quoted} is {done} while `{event.op}` on it is under way",
        spans,
        why="until wait() has returned, a thread of the collective reads and writes this memory",
        fixes=(idea("call wait() on the collective's Work before this line"),),
    )
