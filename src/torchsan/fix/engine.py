"""Find, prove and choose: one fault after another until the program is clean or nothing more can be proved."""

from __future__ import annotations

from collections.abc import Callable

from torchsan.errors import UsageError
from torchsan.fix.candidates import Candidate, Sources, candidates
from torchsan.fix.compare import How, compare, told
from torchsan.fix.evidence import HEALED, Evidence
from torchsan.fix.identity import Change, Place, keeps_definitions, maker, place
from torchsan.fix.labs import Lab
from torchsan.fix.outcome import Mend, Outcome, as_written
from torchsan.fix.proof import BY_REFERENCE, MAYBE_BY_REFERENCE, Case, Kind, Verdict, judge, lasting
from torchsan.fix.ranks import HEALED_ON_RANKS
from torchsan.fix.source import Edit, Source, real
from torchsan.fix.trial import Mode, Trial
from torchsan.model import Finding, Span
from torchsan.model.source import real_path

Key = tuple[object, ...]
# Attempts to mend all at once before one is taken after another.
TOGETHER = 3
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
        # The healed run of the program with the edits accepted so far, and of the program as it was.
        self._reference: Trial | None = None
        self._first_reference: Trial | None = None
        self._evidence: Evidence | None = None

    def run(self) -> Outcome:
        self.tell("running the program under the recorder")
        current = self._run({}, "watch")
        outcome = Outcome(current, last=current, files=self.files)
        # What could not be mended, and how many edits had been accepted when it was tried.
        given_up: dict[Key, int] = {}
        while self.lab.runs < self.budget:
            target = _next_target(current, given_up, len(outcome.accepted))
            if target is None:
                break
            mends, after = self._mend_together(target, current)
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
        self._settle(outcome)
        if all(mend.proved for mend in outcome.mends if mend.candidate is not None):
            outcome.changed = {p: s for p, s in self.changed.items() if s.raw != self.files[p].raw}
        outcome.runs = self.lab.runs
        return outcome

    def _run(self, changed: dict[str, Source], mode: Mode) -> Trial:
        trial = self.lab.run(changed, mode)
        escaped = self._first is not None and bool(self._first.error)
        same = self._reference is not None and trial.exit_code == self._reference.exit_code
        if not trial.error and (escaped or same):
            # Errors are not caught by the program: an exit code is what it means to say.
            trial.status = 0
        self._first = self._first or trial
        return trial

    def _mend_together(self, target: Finding, before: Trial) -> tuple[list[Mend], Trial | None]:
        """The first idea for every overwritten value at once: the healed run tells them all, not only the first."""
        reference = self._healed(target) if target.code in BY_REFERENCE else None
        others = self._other_writes(target, reference) if reference is not None else []
        if reference is None or not others:
            return [], None
        ideas = [(finding, list(candidates(finding, self.sources))) for finding in (target, *others)]
        tried = {self._place(finding): 0 for finding, _ in ideas}
        changed: dict[str, Source] = {}
        for _ in range(TOGETHER):
            together = [
                (finding, known[tried[self._place(finding)]])
                for finding, known in ideas
                if tried[self._place(finding)] < len(known)
            ]
            changed = _merged([candidate for _, candidate in together])
            if len(together) < 2 or not changed:
                return [], None
            self.tell(f"{target.code}: trying {len(together)} edits together")
            after = self._run({**self.changed, **changed}, "watch")
            stubborn = {self._place_before(finding, changed) for finding in after.alarms} & set(tried)
            if not stubborn:
                break
            # The next idea for those that the first did not help.
            tried.update({key: tried[key] + 1 for key in stubborn})
        if after.failed or after.alarms or compare(reference, after, How()):
            return [], None
        words = f"runs; {told(after, HEALED)}"
        mends = [Mend(as_written(finding, self.sources, self.files)) for finding, _ in together]
        for mend, (_, candidate) in zip(mends, together, strict=True):
            mend.candidate, mend.verdict = candidate, Verdict("proved", words, equal=True)
            self.files.setdefault(candidate.source.path, candidate.source)
        mends[0].cost_bytes = _extra(before, after)
        for path, source in changed.items():
            self.changed[path] = source
            self.sources = self.sources.with_file(source)
        self._evidence = None
        return mends, after

    def _place(self, finding: Finding) -> tuple[Place | None, Place | None]:
        """The write, and the layer that makes it: two layers may write at one call."""
        source, made = self.sources.get(finding.primary.path), maker(finding)
        return place(source, finding.primary), place(self.sources.get(made.path), made) if made is not None else None

    def _place_before(self, finding: Finding, changed: dict[str, Source]) -> tuple[Place | None, Place | None]:
        """Where the write of a finding stood before the edits."""

        def before(span: Span | None) -> Place | None:
            path = real(real_path(span.path)) if span is not None else ""
            old, new = self.sources.get(path), changed.get(path)
            return Change(old, new).before(span) if old is not None and new is not None else place(old, span)

        return before(finding.primary), before(maker(finding))

    def _other_writes(self, target: Finding, reference: Trial) -> list[Finding]:
        """Findings of the healed run about other writes than this one, one for each write."""
        seen = {self._place(target)}
        found = []
        for finding in reference.alarms:
            if finding.code in BY_REFERENCE and self._place(finding) not in seen:
                seen.add(self._place(finding))
                found.append(finding)
        return found

    def _mend(self, target: Finding, before: Trial) -> tuple[Mend, Trial | None]:
        mend = Mend(as_written(target, self.sources, self.files))
        partial: Step | None = None
        unproved: Step | None = None
        for candidate in candidates(target, self.sources):
            if self.lab.runs >= self.budget:
                mend.dropped.append((candidate.title, "not tried: too many runs"))
                break
            verdict, after, goes_on = self._try(candidate, target, before)
            if verdict.kind == "dropped":
                mend.dropped.append((candidate.title, verdict.words))
            elif verdict.kind == "proved" or (verdict.kind == "progress" and verdict.equal and not goes_on):
                return self._accept(mend, (candidate, verdict, after), before), after
            elif verdict.kind == "runs":
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

    def _try(self, candidate: Candidate, target: Finding, before: Trial) -> tuple[Verdict, Trial, bool]:
        """Run a candidate and judge it; the last value tells whether the same write goes on doing harm."""
        new = candidate.result()
        assert new is not None
        reference = self._healed(target)
        self.tell(f"{target.code}: trying {candidate.title}")
        after = self._run({**self.changed, new.path: new}, "watch")
        case = Case(target, before, reference, after, candidate.source, new)
        verdict = judge(case)
        if verdict.kind == "runs":
            verdict = self._weigh(case)
            if verdict.kind == "runs" and reference is not None and _others_between_ranks(target, after):
                verdict = self._checked_by_healing(reference, new, HEALED_ON_RANKS[target.code])
        elif verdict.kind == "progress" and reference is not None and target.code in BY_REFERENCE:
            verdict = self._checked_by_healing(reference, new)
        return verdict, after, lasting(case)

    def _weigh(self, case: Case) -> Verdict:
        if self._evidence is None:
            self._evidence = Evidence(self._run, self.sources.get, dict(self.changed), self.tell)
        return self._evidence.weigh(case)

    def _checked_by_healing(self, reference: Trial, new: Source, against: str = HEALED) -> Verdict:
        """While other faults stop the program only its healed run can show that an edit changed nothing else."""
        self.tell("running the candidate healed")
        healed = self._run({**self.changed, new.path: new}, "heal")
        problem = compare(reference, healed, How())
        if problem:
            return Verdict("dropped", problem)
        words = f"this fault is gone; healed, {told(healed, against)}; another fault follows"
        return Verdict("progress", words, equal=bool(healed.passes) or healed.ranks > 1)

    def _accept(self, mend: Mend, step: Step, before: Trial) -> Mend:
        mend.candidate, mend.verdict, after = step
        mend.cost_bytes = _extra(before, after)
        if mend.verdict.kind == "proved" and mend.finding.code in BY_REFERENCE:
            mend.candidate = self._where_no_run_came(mend.candidate, mend.finding.code, after)
        new = mend.candidate.result()
        assert new is not None
        self.files.setdefault(new.path, mend.candidate.source)
        self.changed[new.path] = new
        self.sources = self.sources.with_file(new)
        self._evidence = None
        if not mend.verdict.equal:
            # The edit changes what the program computes: the healed run of before is no measure any more.
            self._reference = None
        return mend

    def _where_no_run_came(self, candidate: Candidate, code: str, after: Trial) -> Candidate:
        """The same fault on branches that the run did not take, as far as the source alone tells it and its cure."""
        from torchsan.fix import static

        new = candidate.result()
        assert new is not None
        more = static.mend(new.path, new.raw, unsafe=False, wanted=lambda found: found.code == code)
        if more is None or not keeps_definitions(candidate.source, more.after) or self.lab.runs >= self.budget:
            return candidate
        self.tell("trying the same edit where the run did not come")
        again = self._run({**self.changed, new.path: more.after}, "watch")
        if again.failed or len(again.alarms) > len(after.alarms) or compare(after, again, How()):
            return candidate
        whole = Edit(0, len(candidate.source.text), more.after.text)
        title = f"{candidate.title}, and the same where this run did not come"
        return Candidate(title, candidate.source, (whole,), candidate.rewrite, candidate.span)

    def _check_again(self) -> None:
        """The program as it is must fail as it did: else it cannot be tried again and again."""
        if self.changed or self._first is None:
            return
        again = self._run({}, "watch")
        if again.error and again.error.partition(":")[0] != self._first.error.partition(":")[0]:
            raise UsageError(f"the program cannot be run again and again: its second run fails with {again.error}")

    def _healed(self, target: Finding) -> Trial | None:
        if target.code not in BY_REFERENCE | MAYBE_BY_REFERENCE:
            return None
        if self._reference is None:
            self.tell("running it healed, for the reference")
            self._reference = self._run(dict(self.changed), "heal")
            if not self.changed:
                self._first_reference = self._reference
            self.sources.aliases = self._reference.aliases
            if self._reference.error and not self._reference.passes:
                self._check_again()
        return self._reference

    def _settle(self, outcome: Outcome) -> None:
        """Edits that were but a step towards a clean program count only if the steps after them led there."""
        last = outcome.last
        assert last is not None
        whole = ""
        for mend in outcome.accepted:
            assert mend.verdict is not None
            if last.failed:
                # No edit is called verified as long as its program ends in an error.
                words = "this fault is gone, but not proved: the program still stops at another one"
                mend.verdict = Verdict("progress", words)
            elif mend.verdict.kind == "progress" and mend.verdict.equal:
                mend.verdict = Verdict("proved", mend.verdict.words, equal=True)
            elif mend.verdict.kind == "progress":
                whole = whole or self._as_a_whole(last, outcome)
                kind: Kind = "proved" if whole.startswith("together") else "runs"
                mend.verdict = Verdict(kind, whole)

        shaky = False
        for mend in outcome.accepted:
            if shaky and mend.proved and mend.verdict is not None:
                mend.verdict = Verdict("runs", f"proved only on top of an edit that is not: {mend.verdict.words}")
            shaky = shaky or not mend.proved

    def _as_a_whole(self, last: Trial, outcome: Outcome) -> str:
        """All edits together against the program as it was, with saved values kept and refused writes made."""
        codes = {mend.finding.code for mend in outcome.accepted}
        if codes <= BY_REFERENCE | MAYBE_BY_REFERENCE:
            self._first_reference = self._first_reference or self._run({}, "heal")
            if not self._first_reference.failed and not compare(self._first_reference, last, How()):
                slopes = self._run(dict(self.changed), "slopes").slopes if last.passes else []
                if not last.passes or (slopes and all(one.agree() for one in slopes)) or codes <= BY_REFERENCE:
                    return f"together with the other edits it runs; {told(last, HEALED)}"
        return "runs, not proved: the fault is gone together with the other edits"


def _others_between_ranks(target: Finding, after: Trial) -> bool:
    """Other faults of the same kind are still there: the run of this edit alone cannot be the healed one."""
    return target.code in HEALED_ON_RANKS and any(f.code in HEALED_ON_RANKS for f in after.alarms)


def _extra(before: Trial, after: Trial) -> int:
    """Bytes that the graph keeps more than before, in the passes that both made."""
    return max((b - a for a, b in zip(before.kept, after.kept, strict=False)), default=0)


def _merged(chosen: list[Candidate]) -> dict[str, Source]:
    """The files after all edits of several candidates; nothing when they get in each other's way."""
    edits: dict[str, tuple[Source, set[Edit]]] = {}
    for candidate in chosen:
        edits.setdefault(candidate.source.path, (candidate.source, set()))[1].update(candidate.edits)
    merged = {path: source.edited(all_edits) for path, (source, all_edits) in edits.items()}
    return {path: source for path, source in merged.items() if source is not None} if all(merged.values()) else {}


def _key(finding: Finding) -> Key:
    made = maker(finding)
    layer = (made.line, made.column) if made is not None else None
    return (finding.code, real(real_path(finding.primary.path)), finding.primary.line, layer, finding.message)


def _next_target(trial: Trial, given_up: dict[Key, int], accepted: int) -> Finding | None:
    """What stopped the program first, then the rest; at last, once more, what other edits may have freed."""
    fresh = [finding for finding in trial.alarms if _key(finding) not in given_up]
    again = [finding for finding in trial.alarms if given_up.get(_key(finding), accepted) < accepted]
    return min(fresh or again, key=lambda finding: finding.level != "error", default=None)
