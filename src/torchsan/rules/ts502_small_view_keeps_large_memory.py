"""A small saved view keeps a large memory until backward.

What it is. A slice is a view: `x[:, 0]` has no memory of its own. When an op saves it for a gradient, the graph keeps
the whole memory that it was cut from.

What goes wrong. Nothing is wrong with the numbers. The large tensor lives until backward although nobody else needs it,
and the step takes more memory than the values that are saved. Told by `torchsan run --memory` only.

How to fix. Copy the part that is used: `x[:, 0].clone()`. Its gradient goes through all the same.

When to ignore. When the large tensor is needed later in the step anyway, or memory is no concern.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.memory import size
from torchsan.model.memory_events import SmallViewKept
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS502"
NAME = "small-view-keeps-large-memory"
LEVEL = "note"
DEFAULT = False

BAD = """
import torch

head = torch.nn.Linear(16, 1)


def first_token(width):
    return torch.randn(64, width, 16)[:, 0]


loss = head(first_token(128)).pow(2).mean()  # <- TS502
loss.backward()
"""

GOOD = """
import torch

head = torch.nn.Linear(16, 1)


def first_token(width):
    return torch.randn(64, width, 16)[:, 0].clone()


loss = head(first_token(128)).pow(2).mean()
loss.backward()
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, SmallViewKept):
        return None
    kept, own = size(event.storage_bytes), size(event.view_bytes)
    return finding(
        globals(),
        f"`{event.op}` saves a view of {own} here, which keeps {kept} until backward",
        event.saved.spans("saved", f"saved here: a view of {own} in a memory of {kept}", primary=True),
        why="a view has no memory of its own: the graph keeps all that it was cut from",
        fixes=(idea("copy the part that is used: `.clone()` after the slice"),),
    )
