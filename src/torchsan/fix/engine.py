"""Find, prove and choose: one fault after another until the program is clean or nothing more can be proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torchsan.errors import UsageError
from torchsan.fix.candidates import Candidate, Sources, candidates
from torchsan.fix.compare import How, Restless, compare, told
from torchsan.fix.completing import completed
from torchsan.fix.evidence import HEALED, Evidence
from torchsan.fix.identity import maker
from torchsan.fix.labs import Lab
from torchsan.fix.onlookers import seen_by_others
from torchsan.fix.outcome import Mend, Outcome, as_written
from torchsan.fix.proof import BY_REFERENCE, MAYBE_BY_REFERENCE, Case, Verdict, judge, lasting
from torchsan.fix.ranks import HEALED_ON_RANKS
from torchsan.fix.settling import Claim, added_lines, settle, unsaid, where_no_run_came
from torchsan.fix.source import Source, real
from torchsan.fix.together import mend_together
from torchsan.fix.trial import Alias, Mode, Trial
from torchsan.model import Finding
from torchsan.model.source import real_path

Key = tuple[object, ...]
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
        self._first: Trial | None = None
        self._trials: dict[Key, Trial] = {}
        # The healed run of the program with the edits accepted so far, and of the program as it was.
        self._reference: Trial | None = None
        self._first_reference: Trial | None = None
        self._evidence: Evidence | None = None
        # No edit so far has changed what the program computes when it is healed.
        self._all_equal = True
        # Files as a run has proved them, where analysis has added to them.
        self.proved: dict[str, Source] = {}
        # What differs from run to run whatever the edit.
        self.restless = Restless()

    def run(self) -> Outcome:
        self.tell("running the program under the recorder")
        current = self.trial({}, "watch")
        outcome = Outcome(current, last=current, files=self.files)
        # What could not be mended, and how many edits had been accepted when it was tried.
        given_up: dict[Key, int] = {}
        while self.lab.runs < self.budget:
            target = _next_target(current, given_up, len(outcome.accepted))
            if target is None:
                break
            mends, after = mend_together(self, target, current)
            if after is None:
                mend, after = self._mend(target, current)
                mends = [mend]
            if after is None:
                given_up[_key(target)] = len(outcome.accepted)
                outcome.mends = [m for m in outcome.mends if m.accepted or _key(m.finding) != _key(mends[0].finding)]
            else:
                current = outcome.last = after
            outcome.mends += mends
        outcome.forget_what_is_gone()
        settle(self, outcome)
        if all(mend.proved for mend in outcome.mends if mend.candidate is not None):
            outcome.changed = {p: s for p, s in self.changed.items() if s.raw != self.files[p].raw}
        outcome.runs = self.lab.runs
        return outcome

    def trial(self, changed: dict[str, Source], mode: Mode) -> Trial:
        """Run it; what was run in the same way before is known, but for watched runs, by which runs are compared."""
        key = (mode, *sorted((path, source.raw) for path, source in changed.items()))
        known = self._trials.get(key)
        if known is not None:
            return known
        trial = self.lab.run(changed, mode)
        if mode != "watch":
            self._trials[key] = trial
        escaped = self._first is not None and bool(self._first.error)
        same = self._reference is not None and trial.exit_code == self._reference.exit_code
        if not trial.error and (escaped or same):
            # Errors are not caught by the program: an exit code is what it means to say.
            trial.status = 0
        self._first = self._first or trial
        return trial

    def _mend(self, target: Finding, before: Trial) -> tuple[Mend, Trial | None]:
        mend = Mend(as_written(target, self.sources, self.files))
        partial: Step | None = None
        unproved: Step | None = None
        for candidate in self.ideas(target):
            if self.lab.runs >= self.budget:
                mend.dropped.append((candidate.title, "not tried: too many runs"))
                break
            verdict, after, goes_on = self._try(candidate, target, before)
            if verdict.kind == "dropped":
                mend.dropped.append((candidate.title, verdict.words))
                continue
            if verdict.kind == "proved":
                candidate, verdict, after = self._claimed(candidate, verdict, target, after)
            if verdict.kind == "progress" and verdict.equal:
                why = seen_by_others(candidate, target, self.aliases_of(target), self.sources.get)
                verdict = Verdict("runs", f"runs, not proved: {why}", equal=True) if why else verdict
            if verdict.kind == "proved" or (verdict.kind == "progress" and verdict.equal and not goes_on):
                return self._accept(mend, (candidate, verdict, after), before), after
            if verdict.kind == "runs":
                unproved = unproved or (candidate, verdict, after)
                mend.dropped.append((candidate.title, verdict.words))
            else:
                # What is left may be one more fault of this write, or of its kind: another candidate may mend all.
                partial = partial or (candidate, verdict, after)
        if partial is not None and not before.failed:
            partial = None  # what is not proved is not built upon where the program runs without it
        step = partial or unproved
        if step is None:
            reasons = {why for _, why in mend.dropped}
            if len(reasons) == 1 and reasons.pop().startswith("it fails") and self.lab.runs < self.budget:
                self._check_again()
            return mend, None
        if step is unproved:
            mend.dropped = [(title, why) for title, why in mend.dropped if title != step[0].title]
            if not before.failed:
                # The program runs without it: an edit that nobody proved is shown, and the search goes on without it.
                mend.idea, mend.verdict = step[0], step[1]
                return mend, None
        return self._accept(mend, step, before), step[2]

    def ideas(self, target: Finding) -> list[Candidate]:
        """All candidates; those after which somebody else still sees what was written come last."""
        self.healed(target)
        aliases = self.aliases_of(target)
        found = candidates(target, self.sources)
        return sorted(found, key=lambda one: bool(seen_by_others(one, target, aliases, self.sources.get)))

    def _try(self, candidate: Candidate, target: Finding, before: Trial) -> tuple[Verdict, Trial, bool]:
        """Run a candidate and judge it; the last value tells whether the same write goes on doing harm."""
        new = candidate.result()
        assert new is not None
        reference = self.healed(target)
        self.tell(f"{target.code}: trying {candidate.title}")
        after = self.trial({**self.changed, new.path: new}, "watch")
        case = Case(target, before, reference, after, candidate.source, new)
        verdict = judge(case)
        if verdict.kind == "runs":
            verdict = self._weigh(case)
            if verdict.kind == "runs" and reference is not None and _others_between_ranks(target, after):
                verdict = self._checked_by_healing(reference, new, HEALED_ON_RANKS[target.code])
        elif verdict.kind == "progress" and reference is not None and target.code in BY_REFERENCE:
            verdict = self._checked_by_healing(reference, new)
        return verdict, after, lasting(case)

    def _claimed(self, candidate: Candidate, verdict: Verdict, target: Finding, after: Trial) -> Step:
        """Proved for this run; and beyond it?"""
        whole = completed(self, candidate, target, after)
        if whole.left:
            return candidate, Verdict("runs", f"runs, not proved: {whole.left}", equal=verdict.equal), after
        candidate, after = whole.candidate, whole.run
        verdict = replace(verdict, words=f"{verdict.words}{whole.also}")
        base = candidate.result()
        assert base is not None
        aliases = self.aliases_of(target)
        equal = verdict.equal and self._all_equal
        why = ""
        for one in (where_no_run_came(candidate, target.code), candidate):
            new = one.result() if one is not None else None
            if one is None or new is None:
                continue
            claim = Claim({**self.changed, new.path: new}, after, [(one, target, aliases)], equal, verdict.kept)
            why = unsaid(self, claim, {base.path: base})
            if why:
                continue
            if one is not candidate:
                self.proved[base.path] = base
                there = f"the same edit at {added_lines(base, new)}, where the run did not come, is safe by analysis"
                verdict = replace(verdict, words=f"{verdict.words}; {there}")
            return one, verdict, after
        return candidate, Verdict("runs", f"runs, not proved: {why}", equal=verdict.equal), after

    def _weigh(self, case: Case) -> Verdict:
        if self._evidence is None:
            self._evidence = Evidence(self.trial, self.sources.get, dict(self.changed), self.tell)
        verdict = self._evidence.weigh(case)
        self.restless = self._evidence.restless
        return verdict

    def _checked_by_healing(self, reference: Trial, new: Source, against: str = HEALED) -> Verdict:
        """While other faults stop the program only its healed run can show that an edit changed nothing else."""
        self.tell("running the candidate healed")
        healed = self.trial({**self.changed, new.path: new}, "heal")
        problem = compare(reference, healed, How())
        if problem:
            return Verdict("dropped", problem)
        words = f"this fault is gone; healed, {told(healed, against)}; another fault follows"
        return Verdict("progress", words, equal=bool(healed.passes) or healed.ranks > 1)

    def _accept(self, mend: Mend, step: Step, before: Trial) -> Mend:
        mend.candidate, mend.verdict, after = step
        mend.cost_bytes = after.extra(before)
        mend.aliases = self.aliases_of(mend.finding)
        new = mend.candidate.result()
        assert new is not None
        self.files.setdefault(new.path, mend.candidate.source)
        self.take(new)
        if not mend.verdict.equal:
            self._all_equal = False
            # The edit changes what the program computes: the healed run of before is no measure any more.
            self._reference = None
        return mend

    def take(self, new: Source) -> None:
        """From now on the program is the one with this file."""
        self.changed[new.path] = new
        self.sources = self.sources.with_file(new)
        self._evidence = None

    def aliases_of(self, finding: Finding) -> list[Alias]:
        """Who else held the memory that was written."""
        spans = [span for span in finding.spans if span.role == "mutated"]
        keys = {(real(real_path(span.path)), span.line) for span in spans}
        return [alias for key in keys for alias in self.sources.aliases.get(key, [])]

    def _check_again(self) -> None:
        """The program as it is must fail as it did: else it cannot be tried again and again."""
        if self.changed or self._first is None:
            return
        again = self.trial({}, "watch")
        if again.error and again.error.partition(":")[0] != self._first.error.partition(":")[0]:
            raise UsageError(f"the program cannot be run again and again: its second run fails with {again.error}")

    def healed(self, target: Finding) -> Trial | None:
        if target.code not in BY_REFERENCE | MAYBE_BY_REFERENCE:
            return None
        if self._reference is None:
            self.tell("running it healed, for the reference")
            self._reference = self.trial(dict(self.changed), "heal")
            if not self.changed:
                self._first_reference = self._reference
            self.sources.aliases = self._reference.aliases
            if self._reference.error and not self._reference.passes:
                self._check_again()
        return self._reference

    def first_reference(self) -> Trial:
        """The healed run of the program as it was."""
        if self._first_reference is None:
            self._first_reference = self.trial({}, "heal")
        return self._first_reference


def _others_between_ranks(target: Finding, after: Trial) -> bool:
    """Other faults of the same kind are still there: the run of this edit alone cannot be the healed one."""
    return target.code in HEALED_ON_RANKS and any(f.code in HEALED_ON_RANKS for f in after.alarms)


def _key(finding: Finding) -> Key:
    made = maker(finding)
    layer = (made.line, made.column) if made is not None else None
    return (finding.code, real(real_path(finding.primary.path)), finding.primary.line, layer, finding.message)


def _next_target(trial: Trial, given_up: dict[Key, int], accepted: int) -> Finding | None:
    """What stopped the program first, then the rest; at last, once more, what other edits may have freed."""
    fresh = [finding for finding in trial.alarms if _key(finding) not in given_up]
    again = [finding for finding in trial.alarms if given_up.get(_key(finding), accepted) < accepted]

    def order(finding: Finding) -> tuple[bool, bool]:
        # What ended the program comes before what would have been wrong had it gone on.
        return finding.level != "error", trial.failed and not finding.code.startswith("TS1")

    return min(fresh or again, key=order, default=None)
