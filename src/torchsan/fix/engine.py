"""Find, prove and choose: one fault after another until the program is clean or nothing more can be proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torchsan.fix.candidates import Candidate, Sources, candidates
from torchsan.fix.labs import Lab
from torchsan.fix.outcome import Mend, Outcome, as_written
from torchsan.fix.proof import BY_REFERENCE, MAYBE_BY_REFERENCE, Case, Verdict, compare, judge, same_write
from torchsan.fix.source import Source, real
from torchsan.fix.trial import Trial
from torchsan.model import Finding
from torchsan.model.source import real_path

Step = tuple[Candidate, Verdict, Trial]


class Engine:
    """Greedy search: candidates in the order of their cost, the first that is proved is taken."""

    def __init__(self, lab: Lab, *, budget: int = 60, tell: Callable[[str], None] = lambda _: None) -> None:
        self.lab = lab
        self.budget = budget
        self.tell = tell
        self.sources = Sources()
        self.files: dict[str, Source] = {}
        self.changed: dict[str, Source] = {}
        self._reference: Trial | None = None

    def run(self) -> Outcome:
        self.tell("running the program under the recorder")
        current = self.lab.run({}, "watch")
        outcome = Outcome(current, last=current, files=self.files)
        given_up: set[tuple[object, ...]] = set()
        while self.lab.runs < self.budget:
            target = _next_target(current, given_up)
            if target is None:
                break
            mend, after = self._mend(target, current)
            outcome.mends.append(mend)
            if after is None:
                given_up.add(_key(target))
            else:
                current = outcome.last = after
                # What could not be mended before may have been stopped by the fault that is gone now.
                given_up.clear()
        _settle(outcome)
        if all(mend.proved for mend in outcome.mends if mend.candidate is not None):
            outcome.changed = {p: s for p, s in self.changed.items() if s.raw != self.files[p].raw}
        outcome.runs = self.lab.runs
        return outcome

    def _mend(self, target: Finding, before: Trial) -> tuple[Mend, Trial | None]:
        mend = Mend(as_written(target, self.sources, self.files))
        partial: Step | None = None
        for candidate in candidates(target, self.sources):
            if self.lab.runs >= self.budget:
                mend.dropped.append((candidate.title, "not tried: too many runs"))
                break
            verdict, after, lasting = self._try(candidate, target, before)
            if verdict.kind == "dropped":
                mend.dropped.append((candidate.title, verdict.words))
            elif verdict.kind == "proved" or (verdict.equal and not lasting):
                return self._accept(mend, (candidate, verdict, after), before), after
            else:
                # What is left may be one more fault of this write, or of its kind: another candidate may mend all.
                partial = partial or (candidate, verdict, after)
        if partial is None:
            return mend, None
        return self._accept(mend, partial, before), partial[2]

    def _try(self, candidate: Candidate, target: Finding, before: Trial) -> tuple[Verdict, Trial, bool]:
        """Run a candidate and judge it; the last value tells whether the same write goes on doing harm."""
        new = candidate.result()
        assert new is not None
        reference = self._healed(target)
        self.tell(f"{target.code}: trying {candidate.title}")
        after = self.lab.run({**self.changed, new.path: new}, "watch")
        case = Case(target, before, reference, after, candidate.source, new)
        verdict = judge(case)
        if verdict.kind == "progress" and reference is not None:
            verdict = self._checked_by_healing(reference, new)
        return verdict, after, any(same_write(case, found) for found in after.alarms)

    def _checked_by_healing(self, reference: Trial, new: Source) -> Verdict:
        """While other faults stop the program only its healed run can show that an edit changed nothing else."""
        self.tell("running the candidate healed")
        healed = self.lab.run({**self.changed, new.path: new}, "heal")
        problem = compare(reference, healed, whole=True)
        if problem:
            return Verdict("dropped", problem)
        words = f"this fault is gone, and all {healed.gradients} gradients equal the reference; another fault follows"
        return Verdict("progress", words, equal=bool(healed.passes))

    def _accept(self, mend: Mend, step: Step, before: Trial) -> Mend:
        mend.candidate, mend.verdict, after = step
        mend.cost_bytes = _extra(before, after)
        new = mend.candidate.result()
        assert new is not None
        self.files.setdefault(new.path, mend.candidate.source)
        self.changed[new.path] = new
        self.sources = self.sources.with_file(new)
        if not mend.verdict.equal:
            # The edit changes what the program computes: the healed run of before is no measure any more.
            self._reference = None
        return mend

    def _healed(self, target: Finding) -> Trial | None:
        if target.code not in BY_REFERENCE | MAYBE_BY_REFERENCE:
            return None
        if self._reference is None:
            self.tell("running it healed, for the reference")
            self._reference = self.lab.run(dict(self.changed), "heal")
        return self._reference


def _settle(outcome: Outcome) -> None:
    """Edits that were but a step towards a clean program count only if the steps after them led there."""
    assert outcome.last is not None
    for mend in outcome.mends:
        if mend.verdict is not None and not mend.proved:
            if outcome.last.failed:
                mend.verdict = replace(mend.verdict, words="not proved: the program still stops at another fault")
            else:
                mend.verdict = Verdict("proved", "runs together with the other edits, and the fault is gone")


def _extra(before: Trial, after: Trial) -> int:
    """Bytes that the graph keeps more than before, in the passes that both made."""
    return max((b - a for a, b in zip(before.kept, after.kept, strict=False)), default=0)


def _key(finding: Finding) -> tuple[object, ...]:
    return (finding.code, real(real_path(finding.primary.path)), finding.primary.line, finding.message)


def _next_target(trial: Trial, given_up: set[tuple[object, ...]]) -> Finding | None:
    """What stopped the program first; then the rest in the order in which it was found."""
    waiting = [finding for finding in trial.alarms if _key(finding) not in given_up]
    return min(waiting, key=lambda finding: finding.level != "error", default=None)
