"""A forked process trains its own copy of a model, and nothing of it comes back.

What it is. A fork has a copy of all memory. Unless the model was put into shared memory, what a child process does to
it is seen by nobody else.

What goes wrong. The parent's model stays as it was, and nothing is raised.

How to fix. Call `model.share_memory()` before the process is started, or send the trained weights back.

When to ignore. When the child's training is a trial, and the parent means to go on with the weights from before.
A child that sends tensors back or writes a file, and a parent that writes the model afterwards, are understood.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import SharedMemory
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS432"
NAME = "forked-copy-trained"
LEVEL = "error"

BAD = """
import torch
import torch.multiprocessing as mp


def work(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()  # <- TS432


if __name__ == "__main__":
    net = torch.nn.Linear(4, 2)
    worker = mp.get_context("fork").Process(target=work, args=(net,))
    worker.start()
    worker.join()
    print(net.weight)
"""

GOOD = """
import torch
import torch.multiprocessing as mp


def work(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    net = torch.nn.Linear(4, 2)
    net.share_memory()
    worker = mp.get_context("fork").Process(target=work, args=(net,))
    worker.start()
    worker.join()
    print(net.weight)
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, SharedMemory) or event.form != "own-copy":
        return None
    spans = [event.line.span("mutated", "steps this process's own copy", primary=True)]
    if event.other is not None and event.other.place != event.line.place:
        spans.append(event.other.span("needed", ""))
    return finding(
        globals(),
        f"a forked process trains its own copy of {event.memory.quoted}: the parent's stays as it was",
        spans,
        why="a fork copies all memory that is not shared",
        fixes=(idea("call share_memory() before the process is started, or send the weights back"),),
    )
