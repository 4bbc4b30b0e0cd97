"""Is a small difference the capture's doing, or the rounding that eager has, too?"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch

from torchsan.verify.compare import Tolerance, difference, flatten
from torchsan.verify.subject import Outcome, Subject
from torchsan.verify.variants import Variant, widened

PUSH = 1e-6
# How much further from the truth than eager a capture may be, and how far eager may be for this to mean anything.
TIMES_EAGER, MOST_ERROR = 8.0, 1e-2
# How much further than a push moves it a result may be.
TIMES_PUSHED = 8.0


def is_noise(
    subject: Subject, variant: Variant, want: Outcome, got: Outcome, tolerance: Tolerance, random: bool
) -> bool:
    """Whether another result decides nothing: rounding moves eager's own by as much."""
    if not random and not variant.double and _within_rounding(subject, variant, want, got):
        return True
    return _moves_as_far(subject, variant, want, got, tolerance)


def _moves_as_far(subject: Subject, variant: Variant, want: Outcome, got: Outcome, tolerance: Tolerance) -> bool:
    """Whether a tiny push of weights and inputs moves eager's result about as far as the capture is from it."""
    nudged = copy.copy(subject)
    nudged.model = subject.fresh()
    with torch.no_grad():
        for parameter in nudged.model.parameters():
            if parameter.is_floating_point():
                parameter.mul_(1 + PUSH)
    plan = variant.plan(subject)
    moved = nudged.run(replace(plan, calls=tuple([_nudged(leaf) for leaf in leaves] for leaves in plan.calls)))
    if moved.error is not None:
        return True
    moved.inputs, moved.state = [], {}
    if difference(want, moved, tolerance) is None:
        return False
    ours, theirs, pushed = (_numbers(outcome) for outcome in (want, got, moved))
    if not len(ours) == len(theirs) == len(pushed):
        return True
    return all(_distance(a, b) <= TIMES_PUSHED * _distance(a, c) for a, b, c in zip(ours, theirs, pushed, strict=True))


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    if a.shape != b.shape:
        return float("inf")
    return float((a - b).abs().nan_to_num().max()) if a.numel() else 0.0


def _numbers(outcome: Outcome) -> list[torch.Tensor]:
    leaves = [leaf for output in outcome.outputs for _, leaf in flatten(output)]
    return [leaf.detach().double() for leaf in leaves if isinstance(leaf, torch.Tensor) and not leaf.is_complex()]


def _nudged(leaf: Any) -> Any:
    is_float = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return leaf.detach() * (1 + PUSH) if is_float else leaf


def _within_rounding(subject: Subject, variant: Variant, want: Outcome, got: Outcome) -> bool:
    """Against the same run in float64: whether the capture is about as far from it as eager itself."""
    plan = variant.plan(subject)
    wide = replace(plan, double=True, calls=tuple([widened(leaf) for leaf in leaves] for leaves in plan.calls))
    truth = subject.run(wide)
    if truth.error is not None:
        return False
    ours, theirs, exact = (_floats(outcome) for outcome in (want, got, truth))
    if not exact or not len(ours) == len(theirs) == len(exact):
        return False
    return all(_about_as_far(a, b, c) for a, b, c in zip(ours, theirs, exact, strict=True))


def _floats(outcome: Outcome) -> list[torch.Tensor]:
    leaves = [leaf for output in outcome.outputs for _, leaf in flatten(output)]
    return [leaf.detach().double() for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def _about_as_far(ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> bool:
    if not ours.shape == theirs.shape == exact.shape:
        return False
    if not exact.numel() or torch.equal(ours, theirs):
        return True
    scale = float(exact.abs().nan_to_num().max())
    eager, capture = (float((t - exact).abs().nan_to_num(float("inf")).max()) for t in (ours, theirs))
    return eager <= MOST_ERROR * scale and capture <= TIMES_EAGER * eager
