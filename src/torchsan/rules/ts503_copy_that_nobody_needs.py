"""A copy after which neither side is written.

What it is. `clone()` gives a value memory of its own, which is needed where one of the two is written afterwards. In
the run that was watched neither was, while both were there.

What goes wrong. Nothing is wrong with the numbers. The same values are in memory twice until backward. Told by
`torchsan run --memory` only; `torchsan fix --memory` takes the copy out and proves that all gradients stay the same.

How to fix. Leave the copy out.

When to ignore. When a branch that this run did not take writes one of them, or when whoever gets the copy may do so.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.memory import size
from torchsan.model.memory_events import CopyUnneeded
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS503"
NAME = "copy-that-nobody-needs"
LEVEL = "note"
DEFAULT = False

BAD = """
import torch

first, second = torch.nn.Linear(64, 256), torch.nn.Linear(256, 1)
for step in range(3):
    h = torch.relu(first(torch.randn(128, 64)))
    kept = h.clone()  # <- TS503
    loss = second(kept).pow(2).mean() + h.mean()
    loss.backward()
"""

GOOD = """
import torch

first, second = torch.nn.Linear(64, 256), torch.nn.Linear(256, 1)
for step in range(3):
    h = torch.relu(first(torch.randn(128, 64)))
    kept = h.clone()
    kept += 1.0
    loss = second(kept).pow(2).mean() + h.mean()
    loss.backward()
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, CopyUnneeded):
        return None
    times = "once" if event.times == 1 else f"{event.times} times"
    return finding(
        globals(),
        f"the copy is not needed: neither side was written while both were there; it takes {size(event.bytes)}",
        [event.copy.span("cause", f"copied here, {times}", primary=True)],
        fixes=(idea("leave the copy out"),),
    )
