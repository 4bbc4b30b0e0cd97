"""Models that draw random numbers, and captures that draw others: compared in distribution.

Every element's mean and spread over many random states must agree within a margin of six standard errors; what
does not is drawn anew, twice as often, and must exceed the margin again before it is called a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from torchsan.verify.compare import Difference, Tolerance, flatten
from torchsan.verify.methods import Captured
from torchsan.verify.subject import Outcome, Subject
from torchsan.verify.variants import Variant

SAMPLES, CONFIRMING, ERRORS, MOST_ELEMENTS = 128, 256, 6.0, 4096
FIRST_SEED = 10_000
Run = Callable[[int], Outcome]


def vector(outcome: Outcome) -> torch.Tensor | None:
    """All numbers that a run returned, in a row."""
    if outcome.error is not None:
        return None
    leaves = [leaf for output in outcome.outputs for _, leaf in flatten(output) if isinstance(leaf, torch.Tensor)]
    rows = [leaf.detach().double().flatten() for leaf in leaves if leaf.layout == torch.strided]
    return torch.cat(rows)[:MOST_ELEMENTS] if rows else None


def draws(first: Outcome, second: Outcome) -> bool:
    """Whether two runs on the same input with other random states gave other results."""
    a, b = vector(first), vector(second)
    return a is not None and b is not None and (a.shape != b.shape or not torch.equal(a.nan_to_num(), b.nan_to_num()))


def samples(run: Run, number: int, start: int) -> torch.Tensor | None:
    """One row for each random state; None when the runs do not give the same number of results."""
    rows = [vector(run(seed)) for seed in range(start, start + number)]
    kept = [row for row in rows if row is not None]
    if len(kept) < number or len({row.shape for row in kept}) != 1:
        return None
    return torch.stack(kept)


def beyond_margin(want: torch.Tensor, got: torch.Tensor, tolerance: Tolerance) -> list[tuple[str, int, float, float]]:
    """Moments that differ by more than chance allows: which, of which element, eager's and the capture's."""
    number, middle = len(want), torch.cat([want, got]).mean(0)
    found = []
    for name, a, b in (("mean", want, got), ("variance", (want - middle) ** 2, (got - middle) ** 2)):
        error = ((a.var(0) + b.var(0)) / number).sqrt()
        margin = ERRORS * error + tolerance.atol + tolerance.rtol * a.mean(0).abs()
        far = (a.mean(0) - b.mean(0)).abs() > margin
        for index in far.nonzero().flatten().tolist():
            found.append((name, index, float(a.mean(0)[index]), float(b.mean(0)[index])))
    return found


class Uncomparable(Exception):
    """Random results whose number is random, too."""


def distribution_difference(subject: Subject, captured: Captured, variant: Variant) -> Difference | None:
    """How the results of eager and of a capture differ over many random states, if they do."""
    plan = variant.plan(subject)

    def eager(seed: int) -> Outcome:
        return subject.run(replace(plan, seed=seed))

    def other(seed: int) -> Outcome:
        return captured.run(subject, replace(plan, seed=seed))

    suspects: set[tuple[str, int]] = set()
    for number, start in ((SAMPLES, FIRST_SEED), (CONFIRMING, 2 * FIRST_SEED)):
        want, got = samples(eager, number, start), samples(other, number, start)
        if want is None or got is None or want.shape != got.shape:
            raise Uncomparable
        far = beyond_margin(want, got, captured.tolerance)
        if suspects:
            far = [moment for moment in far if moment[:2] in suspects]
        if not far:
            return None
        suspects = {moment[:2] for moment in far}
    name, index, a, b = max(far, key=lambda moment: abs(moment[2] - moment[3]))
    text = f"over {CONFIRMING} random states the {name} of output element {index} is {b:.6g} instead of {a:.6g}"
    return Difference("values", "output", text)
