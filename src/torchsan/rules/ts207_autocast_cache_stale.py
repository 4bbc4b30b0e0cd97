"""A forward under autocast used a cached copy of a weight from before the last step.

What it is. Autocast casts each weight once and keeps the cast copy until the outermost `autocast` block ends. An
`optimizer.step()` inside the block changes the weight and not the copy.

What goes wrong. Nothing is raised. Every further forward in the block computes with the old weights: the loss does
not move, or moves only when the block is entered anew.

How to fix. Put only the forward and the loss inside `autocast`; call `backward()` and `step()` outside it. Where the
block has to stay, `torch.clear_autocast_cache()` after the step, or `cache_enabled=False`.

When to ignore. Never: the steps have no effect on the forwards that follow.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding, Span
from torchsan.model.events import StaleCast
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS207"
NAME = "autocast-cache-stale"
LEVEL = "error"

BAD = """
import torch

model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(2, 4)
with torch.autocast("cpu", dtype=torch.bfloat16):
    for _ in range(3):
        loss = model(x).float().pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()  # <- TS207
"""

GOOD = """
import torch

model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(2, 4)
for _ in range(3):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(x).float().pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

FIXES = (("mutated", "clear_cache"),)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, StaleCast) or event.write.line is None:
        return None
    spans: list[Span] = []
    if event.cast is not None:
        spans.append(event.cast.span("saved", "autocast keeps a copy of the weight from here on, and uses it here"))
    spans.extend(event.write.line.spans("mutated", "the weight is stepped here; the copy is not", primary=True))
    if event.needed is not None:
        spans.append(event.needed.span("needed", "this backward belongs to a forward with the old copy"))
    return finding(
        globals(),
        f"{event.memory.quoted} was stepped inside autocast, and the next forward used its cached copy from before",
        spans,
        why="autocast caches the cast of a weight until its outermost block ends",
        fixes=(
            idea("leave the autocast block before backward() and step()"),
            idea("call torch.clear_autocast_cache() after the step"),
        ),
    )
