"""A tensor is written after it was sent to another process, which may not have read it yet.

What it is. A tensor that is put into a queue of torch.multiprocessing is not copied: its memory becomes shared, and the
receiver looks at the same bytes.

What goes wrong. A write by the sender changes what the receiver reads, as timing has it.

How to fix. Send a clone, make a new tensor for each message, or wait for the receiver's answer before writing.

When to ignore. When the receiver is known to have taken it; an answer that goes through a queue, pipe or event is
understood.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import SharedMemory
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS431"
NAME = "written-after-send"
LEVEL = "error"

BAD = """
import torch
import torch.multiprocessing as mp


def read(queue):
    for _ in range(3):
        print(queue.get().sum())


if __name__ == "__main__":
    context = mp.get_context("fork")
    queue = context.Queue()
    reader = context.Process(target=read, args=(queue,))
    reader.start()
    batch = torch.zeros(4)
    for _ in range(3):
        queue.put(batch)
        batch.add_(1)  # <- TS431
    reader.join()
"""

GOOD = """
import torch
import torch.multiprocessing as mp


def read(queue):
    for _ in range(3):
        print(queue.get().sum())


if __name__ == "__main__":
    context = mp.get_context("fork")
    queue = context.Queue()
    reader = context.Process(target=read, args=(queue,))
    reader.start()
    batch = torch.zeros(4)
    for _ in range(3):
        queue.put(batch.clone())
        batch.add_(1)
    reader.join()
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, SharedMemory) or event.form != "written-after-send":
        return None
    spans = [event.line.span("mutated", "written here, for the receiver, too", primary=True)]
    if event.other is not None and event.other.place != event.line.place:
        spans.append(event.other.span("cause", "sent here: its memory is shared from now on"))
    return finding(
        globals(),
        f"{event.memory.quoted} is written after it was sent: the receiver reads the same memory",
        spans,
        why="a queue of torch.multiprocessing hands memory over, not a copy",
        fixes=(idea("send a clone, or wait for an answer before writing"),),
    )
