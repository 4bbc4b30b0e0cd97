"""Branches that a trace froze: which inputs take the other side, and sizes found for those that none has taken."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchsan.model.source import shown_path
from torchsan.verify.frames import is_users
from torchsan.verify.methods import Captured
from torchsan.verify.questions import size_questions, turning_sizes
from torchsan.verify.subject import Outcome
from torchsan.verify.timing import now
from torchsan.verify.truth import Truth
from torchsan.verify.turns import Line, Turns, turned, turns_at
from torchsan.verify.variants import Variant

BRANCH = "Converting a tensor to a Python boolean"


@dataclass
class Sides:
    """`one_sided`: no input that the model accepts took the other side. `refused`: of those, the ones for which it was
    tried and the model itself refused it."""

    one_sided: set[Line] = field(default_factory=set)
    refused: set[Line] = field(default_factory=set)
    found: list[tuple[Variant, Outcome]] = field(default_factory=list)


def frozen_branches(captured: Captured) -> set[Line]:
    """The user's lines at which the tracer saw a tensor, or a size, decide."""
    return {
        (shown_path(path), line) for path, line, text in captured.warnings if text.startswith(BRANCH) and is_users(path)
    }


def other_sides(truth: Truth, captured: Captured, deadline: float) -> Sides:
    lines = frozen_branches(captured)
    sides = Sides(lines)
    if not lines:
        return sides
    with turns_at(lines) as first:
        truth.ask(truth.pairs[0][0])
    for variant, _ in truth.pairs[1:]:
        if not sides.one_sided or now() >= deadline:
            break
        if variant.kind in ("size", "values"):
            sides.one_sided -= _ask(truth, variant, lines, first)[1]
    if sides.one_sided and now() < deadline:
        _solve(truth, sides, first, deadline)
    return sides


def _ask(truth: Truth, variant: Variant, lines: set[Line], first: Turns) -> tuple[Outcome | None, set[Line]]:
    with turns_at(lines) as other:
        outcome = truth.ask(variant)
    return outcome, turned(lines, first, other)


def _solve(truth: Truth, sides: Sides, first: Turns, deadline: float) -> None:
    tried: set[str] = set()
    for question in size_questions(truth.subject, sides.one_sided):
        for variant in turning_sizes(truth.subject, question, truth.sizes):
            if question.line not in sides.one_sided or now() >= deadline:
                break
            if repr(variant.edits) in tried:
                continue
            tried.add(repr(variant.edits))
            outcome, lines = _ask(truth, variant, sides.one_sided, first)
            if outcome is None:
                sides.refused |= lines
                continue
            sides.one_sided -= lines
            sides.found.append((variant, outcome))
    sides.refused &= sides.one_sided
