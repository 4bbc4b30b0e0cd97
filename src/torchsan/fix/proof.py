"""Is a candidate right? Decided by what its run did, against the run before it and the healed run.

Where the healed run shows the program's true gradients (a saved value was overwritten) every value and gradient
must equal it. Where the program itself was wrong or stopped (a refused write, memory shared by mistake) there is
no such run: what went before the fault must be the same, the fault must be gone and nothing new may appear.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from torchsan.fix.source import Source, line_map, real
from torchsan.fix.trial import Leaf, Pass, Step, Trial
from torchsan.model import Finding, Span
from torchsan.model.source import real_path

# The healed run is the truth for these; for the second set it may be, or the loss is computed anew elsewhere.
BY_REFERENCE = {"TS101", "TS110"}
MAYBE_BY_REFERENCE = {"TS105"}
# The cure may be a cut: a pass then reaches fewer parameters, those that it still reaches as before.
CUTTING = {"TS105", "TS111"}
# The graph is meant to grow.
MORE_LEAVES = {"TS206"}
# What the program computes is drawn anew, by other draws.
BY_CHANCE = {"TS306"}
Kind = Literal["proved", "progress", "dropped"]


@dataclass(frozen=True, slots=True)
class Verdict:
    kind: Kind
    words: str
    equal: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """All that is known when a candidate has been run."""

    target: Finding
    before: Trial
    reference: Trial | None
    after: Trial
    old: Source
    new: Source


def judge(case: Case) -> Verdict:
    dropped = _failure(case)
    if dropped:
        return Verdict("dropped", dropped)
    rest = _new_alarms(case)
    unfinished = case.after.failed
    if not unfinished:
        # A program that went on may meet faults that were there before, further down.
        worse = [f for f in rest if f.code != case.target.code]
        worse = [f for f in worse if not (case.before.failed and _is_untouched(case, f))]
        if worse:
            return Verdict("dropped", f"it brings {worse[0].code}: {worse[0].message}")
    problem, equal = _differences(case, whole=not unfinished)
    if problem:
        return Verdict("dropped", problem)
    if unfinished or rest:
        return Verdict("progress", "this fault is gone; another one follows", equal)
    return Verdict("proved", _summary(case, equal), equal)


def _failure(case: Case) -> str:
    after = case.after
    if any("internal error" in trouble for trouble in after.troubles):
        return "the recorder could not watch it"
    if any(_same(case, found) for found in after.alarms):
        return "the fault is still there"
    if after.failed and not after.explained:
        return f"it fails: {after.error or f'exit code {after.status}'}"
    by_reference = case.target.code in BY_REFERENCE  # then the healed run of the candidate decides
    if after.failed and not by_reference and not any(_is_untouched(case, f) for f in after.alarms):
        return f"it fails: {after.error}"
    if len(after.passes) < len(case.before.passes):
        return "it makes fewer backward passes than before"
    return ""


def _old_place(case: Case, span: Span | None) -> tuple[str, int | None] | None:
    """A place of the edited program, as it was before."""
    if span is None:
        return None
    path = real(real_path(span.path))
    if path != case.new.path:
        return path, span.line
    return path, line_map(case.old, case.new).get(span.line)


def _is_untouched(case: Case, finding: Finding) -> bool:
    """The finding is about a line that the candidate did not write."""
    place = _old_place(case, finding.primary)
    if place is None or place[1] is None:
        return False
    if place[0] != case.new.path:
        return True
    return case.old.lines[place[1] - 1] == case.new.lines[finding.primary.line - 1]


def _same(case: Case, found: Finding) -> bool:
    """The finding that was to be mended, seen again after the edit: same fault, same write, same save."""
    target = case.target
    if found.code != target.code:
        return False
    for now, was in ((found.primary, target.primary), (found.span("saved"), target.span("saved"))):
        before = (real(real_path(was.path)), was.line) if was is not None else None
        if _old_place(case, now) != before:
            return False
    return True


def same_write(case: Case, found: Finding) -> bool:
    """Another consequence of the write that was to be mended."""
    was = case.target.primary
    return _old_place(case, found.primary) == (real(real_path(was.path)), was.line)


def _new_alarms(case: Case) -> list[Finding]:
    known = {(f.code, real(real_path(f.primary.path)), f.primary.line) for f in case.before.alarms}
    return [f for f in case.after.alarms if (f.code, *(_old_place(case, f.primary) or ())) not in known]


# -- values and gradients ---------------------------------------------------------------------------------------


def _differences(case: Case, *, whole: bool) -> tuple[str, bool]:
    """What differs from what is known to be right; and whether everything equals the healed run."""
    code = case.target.code
    if code in BY_REFERENCE | MAYBE_BY_REFERENCE and case.reference is not None:
        problem = compare(case.reference, case.after, whole=whole)
        if not problem:
            return "", True
        if code in BY_REFERENCE:
            return problem, False
    if code.startswith("TS3"):
        # A capture was at fault: the model itself must give what it gave, as far as that was not left to chance.
        problem = "" if code in BY_CHANCE else _other_answers(case.before.answers, case.after.answers)
        return problem or compare(case.before, case.after, whole=True), False
    if any(step.starved for step in case.after.steps) and not any(step.starved for step in case.before.steps):
        return "an optimizer is left without any gradient", False
    if case.before.failed:
        # Everything up to the fault was right.
        if code in CUTTING and whole and _reached(case.before) - _reached(case.after):
            return "some parameters get no gradient any more", False
        return compare(case.before, case.after, whole=False, fewer=code in CUTTING), False
    return _structure(case, whole=whole), False


def compare(expected: Trial, got: Trial, *, whole: bool, fewer: bool = False) -> str:
    """What the second run did otherwise than the first; nothing where it ended earlier, unless `whole`."""
    if whole and len(got.passes) < len(expected.passes):
        return "it makes fewer backward passes than the reference"
    for number, (want, have) in enumerate(zip(expected.passes, got.passes, strict=False), 1):
        problem = _pass_differs(want, have, slack=float(number), fewer=fewer)
        if problem:
            return f"{problem} of backward pass {number} differ{'s' if problem.endswith('value') else ''}"
    return _steps_differ(expected.steps, got.steps)


def _pass_differs(want: Pass, have: Pass, *, slack: float, fewer: bool) -> str:
    if len(want.roots) != len(have.roots):
        return "the losses"
    if not all(a.equals(b, slack) for a, b in zip(want.roots, have.roots, strict=True)):
        return "the value"
    if len(want.leaves) != len(have.leaves) and not (fewer and 0 < len(have.leaves) < len(want.leaves)):
        return "the tensors that get a gradient"
    # Each of the smaller set must be found in the larger.
    left = list(want.leaves)
    for leaf in have.leaves:
        match = next((other for other in left if _leaf_equals(leaf, other, slack)), None)
        if match is None:
            return "the gradients"
        left.remove(match)
    return ""


def _leaf_equals(a: Leaf, b: Leaf, slack: float) -> bool:
    if (a.gradient is None) != (b.gradient is None) or not a.value.equals(b.value, slack):
        return False
    return a.gradient is None or b.gradient is None or a.gradient.equals(b.gradient, slack)


def _steps_differ(expected: list[Step], got: list[Step]) -> str:
    """Optimizers may take turns in another order; each must take the same gradients as before."""
    for key in dict.fromkeys(map(_optimizer, expected)):
        wanted = [s for s in expected if _optimizer(s) == key]
        had = [s for s in got if _optimizer(s) == key]
        for number, (want, have) in enumerate(zip(wanted, had, strict=False), 1):
            pairs = zip(want.gradients, have.gradients, strict=True)
            if not all(a.equals(b, float(number)) for a, b in pairs):
                return f"{want.optimizer}.step() takes other gradients"
    return ""


def _optimizer(step: Step) -> tuple[object, ...]:
    return (step.optimizer, *(gradient.shape for gradient in step.gradients))


def _other_answers(before: list[Pass], after: list[Pass]) -> str:
    """An input that the model refused before tells nothing; every other must get the same answer."""
    if len(before) != len(after):
        return "other models are captured, or with other inputs"
    for was, now in zip(before, after, strict=True):
        if was.roots and not now.roots:
            return "the model refuses an input that it took before"
        if was.roots and _pass_differs(was, now, slack=10.0, fewer=False):
            return "the model itself gives another result"
    return ""


def _structure(case: Case, *, whole: bool) -> str:
    """The program was wrong but ran: it must still do the same passes over the same parameters."""
    if whole and len(case.after.passes) != len(case.before.passes):
        return "it makes another number of backward passes"
    for number, (was, now) in enumerate(zip(case.before.passes, case.after.passes, strict=False), 1):
        lost = _shapes(was) - _shapes(now)
        gained = _shapes(now) - _shapes(was)
        if lost or (gained and case.target.code not in MORE_LEAVES):
            return f"backward pass {number} reaches other parameters"
    return ""


def _reached(trial: Trial) -> Counter[tuple[int, ...]]:
    """The most that any pass reaches of each kind of parameter."""
    found: Counter[tuple[int, ...]] = Counter()
    for one in trial.passes:
        found |= _shapes(one)
    return found


def _shapes(one: Pass) -> Counter[tuple[int, ...]]:
    return Counter(leaf.value.shape for leaf in one.leaves if leaf.gradient is not None)


def _amount(trial: Trial) -> str:
    return f"{len(trial.passes)} backward pass{'es' * (len(trial.passes) != 1)}"


def proved_by_reference(after: Trial) -> str:
    return f"runs, and all {after.gradients} gradients of {_amount(after)} equal the reference"


def _summary(case: Case, equal: bool) -> str:
    passes, amount = len(case.after.passes), _amount(case.after)
    if equal:
        return proved_by_reference(case.after)
    same = len(case.before.passes)
    if case.target.code.startswith("TS3"):
        return "captures agree with the model on every variant tried, and the model gives what it gave"
    if not passes:
        return "runs, and the fault is gone"
    if case.before.failed and same:
        return f"runs through {amount}, the fault is gone, gradients before it are as they were"
    return f"runs through {amount}, and the fault is gone"
