"""A parameter was changed after DDP had wrapped the model: DDP does not average its gradient.

What it is. DDP looks at the module once, when it is built: it takes the parameters that require gradients then, and
listens to exactly these. Parameters that are set free, replaced, tied or converted to another type later are not among
them.

What goes wrong. Each rank steps them by its own gradient, and replicas drift apart in silence; or DDP waits for a
gradient that never comes and raises "Expected to have finished reduction".

How to fix. Do all of it before `DistributedDataParallel(model)`, or wrap the model again afterwards.

When to ignore. When the parameter is averaged by other means.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import ParameterUnknown
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS411"
NAME = "parameter-unknown-to-ddp"
LEVEL = "error"
RANKS = 2

BAD = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
net[0].requires_grad_(False)
ddp = DDP(net)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
net[0].requires_grad_(True)  # <- TS411
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
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
net[0].requires_grad_(False)
net[0].requires_grad_(True)
ddp = DDP(net)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    ddp(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""


SAID = {
    "replaced": "was put in after DDP had wrapped the model",
    "unfrozen": "was set free after DDP had wrapped the model",
    "converted": "was converted after DDP had wrapped the model",
    "removed": "is no longer in the model that DDP has wrapped",
}


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, ParameterUnknown):
        return None
    spans = [event.wrapped.span("origin", "wrapped here, with the parameters of that moment")]
    if event.changed is not None:
        spans.append(event.changed.span("cause", "changed here", primary=True))
    lost = event.why == "removed"
    said = "DDP waits here for its gradient" if lost else "stepped here by this rank's own gradient"
    spans.append(event.used.span("needed", said, primary=event.changed is None))
    gradient = "its gradient never comes" if lost else "its gradient is not averaged"
    return finding(
        globals(),
        f"{event.memory.quoted} {SAID[event.why]}: {gradient}",
        spans,
        why="DDP takes the parameters of a module once, when it is built",
        fixes=(idea("change the model before DDP wraps it, or wrap it again afterwards"),),
    )
