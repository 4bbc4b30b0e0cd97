"""Is a candidate right? First what its run did: the fault must be gone, nothing new may appear, what was right stays.

Whether that is *proved* is decided by evidence of its own, in `evidence`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from torchsan.fix.compare import How, compare
from torchsan.fix.identity import Change, is_same, is_same_write
from torchsan.fix.ranks import HEALED_ON_RANKS
from torchsan.fix.source import Source
from torchsan.fix.trial import Pass, Trial
from torchsan.model import Finding

# The healed run, in which refused writes are made, too, is the truth for these to the last value.
BY_REFERENCE = {"TS101", "TS110"}
# It may be the truth for these: else the values are measured in other ways.
MAYBE_BY_REFERENCE = set(HEALED_ON_RANKS) | {
    "TS102",
    "TS103",
    "TS104",
    "TS105",
    "TS106",
    "TS107",
    "TS108",
    "TS109",
    "TS111",
    "TS201",
}
# The cure may be a cut: a pass then reaches fewer parameters, those that it still reaches as before.
CUTTING = {"TS105", "TS111"}
# One memory where two were meant: the truth is the run in which the holder keeps its value, however long that takes.
SHARED = {"TS107", "TS203", "TS204", "TS205", "TS208", "TS210"}
# What the program computes is drawn anew, by other draws.
BY_CHANCE = {"TS306"}
Kind = Literal["proved", "runs", "progress", "dropped"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """proved: with evidence. runs: the fault is gone, nothing more is known. progress: another fault follows."""

    kind: Kind
    words: str
    equal: bool = False
    # It equals the run in which another holder of the memory keeps its value: whoever else held it is not to see it.
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """All that is known when a candidate has been run."""

    target: Finding
    before: Trial
    reference: Trial | None
    after: Trial
    old: Source
    new: Source

    @property
    def change(self) -> Change:
        return Change(self.old, self.new)


def judge(case: Case) -> Verdict:
    """What the run of the candidate alone tells."""
    dropped = _failure(case)
    if dropped:
        return Verdict("dropped", dropped)
    rest = _new_alarms(case)
    unfinished = case.after.failed
    if not unfinished:
        # A program that went on may meet faults that were there before, further down.
        worse = [f for f in rest if f.code != case.target.code]
        worse = [f for f in worse if not (case.before.failed and case.change.is_untouched(f))]
        if worse:
            return Verdict("dropped", f"it brings {worse[0].code}: {worse[0].message}")
    problem = _harm(case, whole=not unfinished)
    if problem:
        return Verdict("dropped", problem)
    if unfinished or rest:
        return Verdict("progress", "this fault is gone; another one follows")
    return Verdict("runs", "runs, not proved: the fault is gone, and nothing is known that it could be compared with")


def _failure(case: Case) -> str:
    after = case.after
    if any("internal error" in trouble for trouble in after.troubles):
        return "the recorder could not watch it"
    if any(is_same(case.change, case.target, found) for found in after.alarms):
        return "the fault is still there"
    if after.failed and not after.explained:
        return f"it fails: {after.error or f'exit code {after.status}'}"
    by_reference = case.target.code in BY_REFERENCE  # then the healed run of the candidate decides
    if after.failed and not by_reference and not any(case.change.is_untouched(f) for f in after.alarms):
        return f"it fails: {after.error}"
    if len(after.passes) < len(case.before.passes):
        return "it makes fewer backward passes than before"
    return ""


def lasting(case: Case) -> bool:
    """Does the same write go on doing harm, to somebody else?"""
    return any(is_same_write(case.change, case.target, found) for found in case.after.alarms)


def _new_alarms(case: Case) -> list[Finding]:
    def known(found: Finding) -> bool:
        return any(f.code == found.code and is_same_write(case.change, f, found) for f in case.before.alarms)

    return [found for found in case.after.alarms if not known(found)]


def _harm(case: Case, *, whole: bool) -> str:
    """What the edit has changed that was right before."""
    code, before, after = case.target.code, case.before, case.after
    if code.startswith("TS3"):
        # A capture was at fault: the model itself must give what it gave, as far as that was not left to chance.
        problem = "" if code in BY_CHANCE else _other_answers(before.answers, after.answers)
        return problem or compare(before, after, How())
    if any(step.starved for step in after.steps) and not any(step.starved for step in before.steps):
        return "an optimizer is left without any gradient"
    if before.failed:
        # Everything up to the fault was right.
        if code in CUTTING and whole and _reached(before) - _reached(after):
            return "some parameters get no gradient any more"
        return compare(before, after, How(whole=False, fewer=code in CUTTING))
    if whole and code not in SHARED and case.reference is None and len(after.passes) != len(before.passes):
        return "it makes another number of backward passes"
    return ""


def _other_answers(before: list[Pass], after: list[Pass]) -> str:
    """An input that the model refused before tells nothing; every other must get the same answer."""
    if len(before) != len(after):
        return "other models are captured, or with other inputs"
    for was, now in zip(before, after, strict=True):
        if was.roots and not now.roots:
            return "the model refuses an input that it took before"
        equal = len(was.roots) == len(now.roots)
        if was.roots and not (equal and all(a.equals(b, 10.0) for a, b in zip(was.roots, now.roots, strict=True))):
            return "the model itself gives another result"
    return ""


def _reached(trial: Trial) -> Counter[tuple[int, ...]]:
    """The most that any pass reaches of each kind of parameter."""
    found: Counter[tuple[int, ...]] = Counter()
    for one in trial.passes:
        found |= Counter(leaf.value.shape for leaf in one.leaves if leaf.gradient is not None)
    return found
