"""A custom autograd Function changed its input and did not say so.

What it is. A `torch.autograd.Function` whose `forward` writes its input in place must call `ctx.mark_dirty(x)`, and
one that returns its input as it is makes a view. Autograd otherwise takes the output for a view of the input, made
by code that it knows nothing about.

What goes wrong. The next in-place op on the output is refused: "This view was created inside a custom Function
(or because an input was returned as-is) …". Until then, gradients through the input may be wrong.

How to fix. Return a new tensor (`return x * 2`), or call `ctx.mark_dirty(x)` before returning it.

When to ignore. Never: the gradient that `backward` defines would be bypassed.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding
from torchsan.model.events import RefusedWrite
from torchsan.rules import finding
from torchsan.rules.refusal import refusal_spans
from torchsan.rules.wording import idea

CODE = "TS109"
NAME = "function-without-mark-dirty"
LEVEL = "error"

BAD = """
import torch


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x *= 2
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


layer = torch.nn.Linear(3, 3)
y = Double.apply(layer(torch.ones(2, 3)))
y *= 3  # <- TS109
y.sum().backward()
"""

GOOD = """
import torch


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


layer = torch.nn.Linear(3, 3)
y = Double.apply(layer(torch.ones(2, 3)))
y *= 3
y.sum().backward()
"""

FIXES = (("origin", "out_of_place"), ("mutated", "out_of_place"))


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, RefusedWrite) or event.reason != "custom-function":
        return None
    return finding(
        globals(),
        f"{event.memory.quoted} comes from a custom Function that returned its input, and is written in place",
        refusal_spans(event, "written here"),
        why="autograd takes the output for a view of the input; the write would bypass the Function's backward",
        fixes=(idea("return a new tensor from forward, or call ctx.mark_dirty on the input it writes"),),
    )


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)
