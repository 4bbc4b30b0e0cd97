"""What a case is like, told from its runs: which kind of evidence can speak of it."""

from __future__ import annotations

from torchsan.fix.proof import SHARED, Case
from torchsan.fix.source import real
from torchsan.fix.trial import Trial
from torchsan.model import Finding
from torchsan.model.source import real_path

# Leaves are written, or views of them.
LEAVES = {"TS102", "TS103"}
ASTRIDE = "a backward goes through weights from before a step and from after it, and may be meant to end at the step"


def shared_as_well(case: Case) -> list[Finding]:
    """Other faults of the very write: it changes memory for a name that is read as if it had kept its value."""
    lines = {(s.path, s.line) for s in case.target.spans if s.role == "mutated"}
    others = [f for f in case.before.alarms if f.code in SHARED - {case.target.code}]
    return [f for f in others if any(s.role == "mutated" and (s.path, s.line) in lines for s in f.spans)]


def other_losses(before: Trial, after: Trial) -> str:
    if before.failed or after.failed or not before.passes or len(before.passes) != len(after.passes):
        return "its losses cannot be compared with those of the program as it is"
    for number, (want, have) in enumerate(zip(before.passes, after.passes, strict=True), 1):
        equal = len(want.roots) == len(have.roots)
        if not equal or not all(a.equals(b) for a, b in zip(want.roots, have.roots, strict=True)):
            return f"for the same parameters loss {number} has another value"
    return ""


def loses_leaves(known: Trial, now: Trial) -> str:
    """Which pass no longer gives a gradient to all that it gave one to; whether it is meant to, no number tells."""
    for number, (was, has) in enumerate(zip(known.passes, now.passes, strict=False), 1):
        if len(has.leaves) < len(was.leaves):
            return f"backward pass {number} reaches {len(has.leaves)} leaves, not {len(was.leaves)}: is it meant to?"
    return ""


def cuts(case: Case) -> bool:
    """Does a pass reach fewer leaves than it did, or than in the healed run?"""
    for known in (case.before, case.reference):
        pairs = zip(known.passes, case.after.passes, strict=False) if known is not None else ()
        if any(len(now.leaves) < len(was.leaves) for was, now in pairs):
            return True
    return case.reference is None and len(case.after.passes) > len(case.before.passes)


def made_in_forward(case: Case) -> bool:
    """Torch made the write, and only backward could not pass it: what the program then computed is known."""
    fails_late = any(span.role == "needed" for span in case.target.spans)
    return case.target.code == "TS107" and fails_late and case.reference is not None and not case.reference.failed


def is_unseen(case: Case) -> bool:
    """Does autograd not see the write? Then the healed run has right values, but not their gradient."""
    return case.reference is not None and bool(written_at(case.target) & case.reference.unseen)


def written_at(finding: Finding) -> set[tuple[str, int]]:
    """The lines that write, by the true paths of their files."""
    return {(real(real_path(span.path)), span.line) for span in finding.spans if span.role == "mutated"}


def meant(case: Case) -> str:
    """What the refused write of the target means, where it is made for every pass anew."""
    known = case.reference.meanings if case.reference is not None else {}
    found = {known.get(place, "") for place in written_at(case.target)} - {""}
    return "" if not found else found.pop() if len(found) == 1 else "unclear"
