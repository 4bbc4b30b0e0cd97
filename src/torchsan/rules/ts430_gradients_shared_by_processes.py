"""Several processes add their gradients up in one and the same memory.

What it is. `model.share_memory()` also shares gradients that are there already. Hogwild training shares weights; each
process needs gradients of its own.

What goes wrong. Processes add to and clear each other's gradients while they are in use, and nothing is raised.

How to fix. Call `share_memory()` before any backward, or `zero_grad(set_to_none=True)` first.

When to ignore. Never; a run that went well was lucky.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import SharedMemory
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS430"
NAME = "gradients-shared-by-processes"
LEVEL = "error"

BAD = """
import torch
import torch.multiprocessing as mp


def work(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    net = torch.nn.Linear(4, 2)
    net(torch.ones(2, 4)).sum().backward()
    net.share_memory()  # <- TS430
    workers = [mp.get_context("fork").Process(target=work, args=(net,)) for _ in range(2)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
"""

GOOD = """
import torch
import torch.multiprocessing as mp


def work(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    net = torch.nn.Linear(4, 2)
    net.share_memory()
    workers = [mp.get_context("fork").Process(target=work, args=(net,)) for _ in range(2)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, SharedMemory) or event.form != "gradients":
        return None
    spans = [event.line.span("cause", "gradients are shared here, too", primary=True)]
    if event.other is not None and event.other.place != event.line.place:
        spans.append(event.other.span("needed", "stepped here by each process"))
    return finding(
        globals(),
        f"{event.detail} processes add their gradients up in the same memory",
        spans,
        why="share_memory() shares whatever is there, gradients included",
        fixes=(idea("share the model before any backward, or set gradients to None first"),),
    )
