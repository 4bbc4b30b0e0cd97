"""A gradient that was plainly expected cannot flow.

What it is. `detach()`, `.data`, `.item()` and `torch.tensor(x)` drop the graph of a value. Where the value is a
target or a metric that is right. Where it is a term of the loss, the term becomes a constant and teaches nothing.

What goes wrong. Nothing, or too late: a detached term only shifts the loss, so the network behind it is not trained;
a loss with no graph at all fails at `backward()`; `.grad` of a tensor that is not a leaf is always `None`.

How to fix. Remove the cut. If it was put there to silence an in-place error, mend that error instead. For `.grad` of
an intermediate tensor call `retain_grad()` on it first, or read it from the leaf.

When to ignore. When the constant is only there so that the loss prints as a round number.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding, Span
from torchsan.model.events import GradientCut
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS206"
NAME = "gradient-cut"
LEVEL = "warning"

BAD = """
import torch

actor = torch.nn.Linear(3, 2)
critic = torch.nn.Linear(2, 1)
action = torch.tanh(actor(torch.ones(4, 3)))
value = critic(action)
loss = (action.pow(2).sum(-1, keepdim=True) - value.detach()).mean()  # <- TS206
loss.backward()
"""

GOOD = """
import torch

actor = torch.nn.Linear(3, 2)
critic = torch.nn.Linear(2, 1)
action = torch.tanh(actor(torch.ones(4, 3)))
value = critic(action)
loss = (action.pow(2).sum(-1, keepdim=True) - value).mean()
loss.backward()
"""

FIXES = (("cause", "keep_graph"), ("cause", "retain_grad"))


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, GradientCut):
        return None
    if event.form == "constant-term":
        return _constant_term(event)
    if event.form == "no-graph":
        return _no_graph(event)
    if event.form == "gathered":
        return _gathered(event)
    return _non_leaf(event) if event.form == "non-leaf-grad" else None


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)


def _constant_term(event: GradientCut) -> Finding | None:
    if event.cut is None:
        return None
    spans: list[Span] = [event.cut.span("cause", "detached here: no gradient passes", primary=True)]
    if event.needed is not None:
        spans.append(event.needed.span("needed", "this backward reaches nothing behind it"))
    return finding(
        globals(),
        f"`{event.by}` is only added to the loss: {event.memory.quoted} has no effect on any gradient",
        spans,
        why="a detached term is a constant of the loss, and the derivative of a constant is zero",
        fixes=(idea(f"use {event.memory.name} itself if it should be trained on, or drop the term"),),
    )


def _no_graph(event: GradientCut) -> Finding | None:
    spans: list[Span] = []
    if event.cut is not None:
        spans.append(event.cut.span("cause", "the graph is dropped here", primary=True))
    if event.needed is not None:
        spans.append(event.needed.span("needed", "needed here", primary=event.cut is None))
    by = f" since `{event.by}`" if event.by else ""
    return finding(
        globals(),
        f"{event.memory.quoted} has no graph{by}: backward has nothing to differentiate",
        spans,
        level="error",
        why="the value was computed without gradients, or its graph was dropped on the way",
        fixes=(idea("keep the loss a tensor: no .item(), .detach(), .data or torch.tensor(…) on the way to it"),),
    )


def _non_leaf(event: GradientCut) -> Finding | None:
    if event.cut is None:
        return None
    return finding(
        globals(),
        f"`.grad` of {event.memory.quoted} is read, which is not a leaf: it is always None",
        [event.cut.span("cause", "read here", primary=True)],
        why="gradients are kept on leaves only; this name holds the result of an operation",
        fixes=(idea("read .grad from the leaf, or call retain_grad() on this tensor before backward"),),
    )


def _gathered(event: GradientCut) -> Finding | None:
    if event.cut is None:
        return None
    spans: list[Span] = [event.cut.span("cause", "copies without a graph are made here", primary=True)]
    if event.needed is not None:
        spans.append(event.needed.span("needed", "this backward takes them for constants"))
    return finding(
        globals(),
        f"`{event.by}` copies {event.memory.quoted} without its graph: no gradient flows through the gathered copies",
        spans,
        why="collectives fill plain memory; this rank's own part, too, is a copy without a history",
        fixes=(
            idea("put this rank's own tensor back in its place among the gathered ones"),
            idea("gather with torch.distributed.nn.functional.all_gather, which carries gradients"),
            idea("detach the tensor first if the copies are meant as constants"),
        ),
    )
