"""Find, prove and choose: one fault after another until the program is clean or nothing more can be proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from torchsan.fix.candidates import Candidate, Sources, candidates
from torchsan.fix.labs import Lab
from torchsan.fix.proof import BY_REFERENCE, MAYBE_BY_REFERENCE, Case, Verdict, compare, judge
from torchsan.fix.source import Source, diff, real
from torchsan.fix.trial import Trial
from torchsan.model import Applicability, Finding, Fix
from torchsan.model.source import real_path


@dataclass(slots=True)
class Mend:
    """A finding, the edit that mends it, and what else was tried."""

    finding: Finding
    candidate: Candidate | None = None
    verdict: Verdict | None = None
    cost_bytes: int = 0
    dropped: list[tuple[str, str]] = field(default_factory=list)

    @property
    def proved(self) -> bool:
        return self.verdict is not None and (self.verdict.kind == "proved" or self.verdict.equal)

    def shown(self) -> Finding:
        """The finding with its fix: the proved edit, else the ideas that nobody could prove."""
        tried = [{"title": title, "why": why} for title, why in self.dropped]
        if self.candidate is None or self.verdict is None:
            notes = tuple(f"tried and dropped: {title} ({why})" for title, why in self.dropped[:4])
            if not notes:
                notes = ("no rewrite that could be tried is known for this place",)
            return replace(self.finding, notes=self.finding.notes + notes)
        after = self.candidate.result()
        assert after is not None
        proof = {"summary": self.verdict.words, "equals_reference": self.verdict.equal, "dropped": tried}
        fix = Fix(
            self.candidate.title, "verified", diff(self.candidate.source, after), self.cost_bytes, proof
        )
        return replace(self.finding, fixes=(fix,))


@dataclass(slots=True)
class Outcome:
    """Everything that was found out."""

    first: Trial
    mends: list[Mend] = field(default_factory=list)
    files: dict[str, Source] = field(default_factory=dict)
    changed: dict[str, Source] = field(default_factory=dict)
    runs: int = 0
    last: Trial | None = None

    @property
    def diff(self) -> str:
        return "".join(diff(self.files[path], source) for path, source in sorted(self.changed.items()))

    @property
    def clean(self) -> bool:
        return self.last is not None and not self.last.alarms and not self.last.failed


class Engine:
    """Greedy search: candidates in the order of their cost, the first that is proved is taken."""

    def __init__(self, lab: Lab, *, budget: int = 60, tell: Callable[[str], None] = lambda _: None) -> None:
        self.lab = lab
        self.budget = budget
        self.tell = tell
        self.sources = Sources()
        self.changed: dict[str, Source] = {}
        self._reference: Trial | None = None

    def run(self) -> Outcome:
        self.tell("running the program under the recorder")
        current = self.lab.run({}, "watch")
        outcome = Outcome(current, last=current)
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
        self._keep_only_the_proved(outcome)
        outcome.runs = self.lab.runs
        return outcome

    def _mend(self, target: Finding, before: Trial) -> tuple[Mend, Trial | None]:
        mend = Mend(target)
        partial: tuple[Candidate, Verdict, Trial] | None = None
        for candidate in candidates(target, self.sources):
            if self.lab.runs >= self.budget:
                mend.dropped.append((candidate.title, "not tried: too many runs"))
                break
            new = candidate.result()
            assert new is not None
            reference = self._healed(target)
            self.tell(f"{target.code}: trying {candidate.title}")
            after = self.lab.run({**self.changed, new.path: new}, "watch")
            verdict = judge(Case(target, before, reference, after, candidate.source, new))
            if verdict.kind == "proved":
                return self._accept(mend, candidate, verdict, before, after), after
            if verdict.kind == "progress":
                verdict = self._checked_by_healing(verdict, reference, new)
            if verdict.kind == "progress" and verdict.equal:
                return self._accept(mend, candidate, verdict, before, after), after
            if verdict.kind == "progress":
                # What is left may be a fault of the same kind, which another candidate mends along with this one.
                partial = partial or (candidate, verdict, after)
                continue
            mend.dropped.append((candidate.title, verdict.words))
        if partial is None:
            return mend, None
        candidate, verdict, after = partial
        return self._accept(mend, candidate, verdict, before, after), after

    def _checked_by_healing(self, verdict: Verdict, reference: Trial | None, new: Source) -> Verdict:
        """While other faults stop the program only its healed run can show that an edit changed nothing else."""
        if reference is None:
            return verdict
        self.tell("running the candidate healed")
        healed = self.lab.run({**self.changed, new.path: new}, "heal")
        problem = compare(reference, healed, whole=True)
        if problem:
            return Verdict("dropped", problem)
        words = f"this fault is gone, and all {healed.gradients} gradients equal the reference; another fault follows"
        return Verdict("progress", words, equal=bool(healed.passes))

    def _accept(
        self, mend: Mend, candidate: Candidate, verdict: Verdict, before: Trial, after: Trial
    ) -> Mend:
        new = candidate.result()
        assert new is not None
        mend.candidate, mend.verdict = candidate, verdict
        mend.cost_bytes = _extra(before, after)
        self.changed[new.path] = new
        self.sources = self.sources.with_file(new)
        if not verdict.equal:
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

    def _keep_only_the_proved(self, outcome: Outcome) -> None:
        """Edits that were but a step towards a clean program count only if the steps after them led there."""
        last = outcome.last
        assert last is not None
        for mend in outcome.mends:
            if mend.verdict is not None and mend.verdict.kind == "progress" and not mend.verdict.equal:
                if last.failed:
                    mend.verdict = replace(mend.verdict, words="not proved: the program still stops at another fault")
                else:
                    mend.verdict = Verdict("proved", "runs together with the other edits, and the fault is gone")
        if not all(mend.proved for mend in outcome.mends if mend.candidate is not None):
            return
        for path, source in self.changed.items():
            outcome.files[path] = Source.read(path)
            if source.raw != outcome.files[path].raw:
                outcome.changed[path] = source


def _extra(before: Trial, after: Trial) -> int:
    """Bytes that the graph keeps more than before, in the passes that both made."""
    pairs = list(zip(before.kept, after.kept, strict=False))
    return max((b - a for a, b in pairs), default=0)


def _key(finding: Finding) -> tuple[object, ...]:
    return (finding.code, real(real_path(finding.primary.path)), finding.primary.line, finding.message)


def _next_target(trial: Trial, given_up: set[tuple[object, ...]]) -> Finding | None:
    """What stopped the program first; then the rest in the order in which it was found."""
    waiting = [finding for finding in trial.alarms if _key(finding) not in given_up]
    if trial.failed and not waiting:
        return None
    return min(waiting, key=lambda finding: finding.level != "error", default=None)
