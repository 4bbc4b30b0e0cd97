"""Slopes of a loss along directions of its leaves: as autograd tells them, and by differences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from torchsan.fix.trial import Slope
from torchsan.fix.twins import Question, Twin

# Steps, relative to the length of the parameters; a loss that is a small rest of large terms needs a long one.
STEPS = (1e-2, 1e-3, 3e-2, 1e-4, 1e-1)
RELATIVE = 0.02
ROUNDING = 16.0


@dataclass(slots=True)
class Use:
    """A leaf: the how-manieth, how often it was used, and in which call of each pass autograd recorded it first."""

    number: int
    leaf: torch.Tensor
    calls: int = 0
    recorded: dict[int, int] = field(default_factory=dict)
    # The first call of each pass, for leaves that custom functions hide from autograd.
    seen: dict[int, int] = field(default_factory=dict)
    # The passes in which it was used while gradients were recorded, also by a call that failed.
    graded: set[int] = field(default_factory=set)

    def moment(self, window: int) -> int | None:
        return self.recorded.get(window, self.seen.get(window))


@dataclass(frozen=True, slots=True)
class Asked:
    """Some leaves, and the process that can tell what the loss is beside them."""

    twin: Twin
    group: list[Use]
    window: int
    at: int
    steps: dict[int, list[torch.Tensor]]
    loss: float
    reached: bool

    def value(self, amounts: list[torch.Tensor]) -> float:
        pairs = zip(self.group, amounts, strict=True)
        moves = {use.number: (use.moment(self.window) or 0, amount) for use, amount in pairs}
        return self.twin.ask(Question(moves, self.at, self.steps if self.window != self.at else {}))


def loss_of(tensors: list[torch.Tensor], given: Any) -> float:
    """The number whose derivative a backward computes."""
    weights = given if isinstance(given, (tuple, list)) else (given,)
    total = 0.0
    with torch.no_grad():
        for number, tensor in enumerate(tensors):
            weight = weights[number] if number < len(weights) else None
            value = (
                tensor.detach().to(torch.float64) if not tensor.is_complex() else torch.view_as_real(tensor.detach())
            )
            if isinstance(weight, torch.Tensor) and not tensor.is_complex():
                value = value * weight.detach().to(torch.float64)
            total += float(value.sum())
    return total


def told_by_autograd(
    leaves: list[torch.Tensor], before: dict[int, Any], args: Any, kwargs: Any, result: Any
) -> dict[int, torch.Tensor] | None:
    """What autograd says of each leaf; None where it was asked for something else than gradients of leaves."""
    if kwargs.get("accumulate_grad", True):
        found = {}
        for leaf in leaves:
            if leaf.grad is not None and leaf.layout == leaf.grad.layout == torch.strided and not leaf.is_complex():
                now = leaf.grad.detach()
                old = before[id(leaf)]
                found[id(leaf)] = (now - old if old is not None else now).to(torch.float64).clone()
        return found
    inputs = args[3] if len(args) > 3 else ()
    if not all(torch.is_tensor(t) and t.is_leaf for t in inputs) or not isinstance(result, (tuple, list)):
        return None
    pairs = zip(inputs, result, strict=False)
    return {id(leaf): g.detach().to(torch.float64).clone() for leaf, g in pairs if g is not None}


def directions(asked: Asked, told: dict[int, torch.Tensor]) -> list[Slope]:
    """The slope along the gradient that was told, and along a direction drawn at random."""
    zeros = (torch.zeros(use.leaf.shape, dtype=torch.float64) for use in asked.group)
    gradients = [told.get(id(use.leaf), zero) for use, zero in zip(asked.group, zeros, strict=True)]
    draw = torch.Generator().manual_seed(asked.group[0].number)
    drawn = [torch.randn(g.shape, generator=draw, dtype=torch.float64) for g in gradients]
    found = []
    steepest = sum(float(g.pow(2).sum()) for g in gradients) ** 0.5
    for direction in (gradients, drawn):
        length = sum(float(d.pow(2).sum()) for d in direction) ** 0.5
        if 0 < length < float("inf"):
            unit = [d / length for d in direction]
            slope = sum(float((g * d).sum()) for g, d in zip(gradients, unit, strict=True))
            found.append(_slope(asked, unit, slope, gradient=steepest, drawn=direction is drawn))
    return found


def _slope(asked: Asked, unit: list[torch.Tensor], told: float, *, gradient: float, drawn: bool) -> Slope:
    group = asked.group
    size = sum(float(use.leaf.detach().to(torch.float64).pow(2).sum()) for use in group) ** 0.5
    rounding = ROUNDING * max(torch.finfo(use.leaf.dtype).eps for use in group) * max(abs(asked.loss), 1e-3)
    # Along a direction drawn at random a slope has this size; one that is smaller is so by chance.
    usual = gradient / sum(part.numel() for part in unit) ** 0.5 if drawn else 0.0
    measured = float("nan")
    for relative in STEPS:
        step = relative * max(size, 1.0)
        ends = [asked.value([sign * step * part for part in unit]) for sign in (1.0, -1.0)]
        measured = (ends[0] - ends[1]) / (2 * step)
        noise = rounding / step
        largest = max(abs(told), abs(measured))
        near = abs(measured - told) <= RELATIVE * max(largest, usual) + noise
        # Rounding may hide a small slope, but not the one along the gradient itself, unless there is none.
        if near and (noise <= 0.2 * largest or largest <= 2 * noise or (drawn and noise <= 0.2 * gradient)):
            return Slope(len(group), told, measured, True, asked.reached)
    return Slope(len(group), told, measured, False, asked.reached)
