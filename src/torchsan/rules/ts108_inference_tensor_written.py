"""A tensor from inference mode was used where autograd has to keep track of it.

What it is. Tensors made inside `torch.inference_mode()` have no version counter, for speed. Outside that mode they
can be read, but neither written in place nor saved for a gradient.

What goes wrong. Torch raises "Inplace update to inference tensor outside InferenceMode is not allowed", often in a
running metric: `test_loss /= len(loader)` below the block.

How to fix. Turn metrics into Python numbers inside the block (`total += loss.item()`), use an out-of-place op
(`total = total / n`), use `torch.no_grad()` instead, or `clone()` the tensor outside the block.

When to ignore. Never: the program stops here.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding
from torchsan.model.events import RefusedWrite
from torchsan.rules import finding
from torchsan.rules.refusal import refusal_spans
from torchsan.rules.wording import idea

CODE = "TS108"
NAME = "inference-tensor-written"
LEVEL = "error"

BAD = """
import torch

total = 0
with torch.inference_mode():
    for _ in range(3):
        total += torch.ones(1)
total /= 3  # <- TS108
"""

GOOD = """
import torch

total = 0
with torch.inference_mode():
    for _ in range(3):
        total += torch.ones(1)
total = total / 3
"""

FIXES = (
    ("mutated", "out_of_place"),
    ("origin", "no_grad_for_inference"),
    ("mutated", "no_grad_for_inference"),
    ("mutated", "clone_before_write"),
    ("mutated", "clone_saved"),
    ("origin", "kept_copy"),
)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, RefusedWrite) or event.reason != "inference":
        return None
    saved = "saved for backward" in event.text
    what = "is saved for a gradient" if saved else "is written in place outside it"
    return finding(
        globals(),
        f"{event.memory.quoted} was made in inference mode, and {what}",
        refusal_spans(event, "used here, outside inference mode", "made here, in inference mode"),
        why="inference tensors carry no version counter, so autograd cannot follow what happens to them",
        fixes=(
            idea("give autograd a copy: .clone(), outside the block")
            if saved
            else idea("use the out-of-place op (x = x / n), or take .item() inside the block"),
            idea("use torch.no_grad() instead of torch.inference_mode()"),
        ),
    )


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)
