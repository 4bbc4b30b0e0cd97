"""The last word on edits: what they prove together, of which lines that is true, and not only by chance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torchsan.fix import static
from torchsan.fix.came import Range, regions
from torchsan.fix.candidates import Candidate, Sources
from torchsan.fix.compare import How, compare, told
from torchsan.fix.edited import Edited
from torchsan.fix.evidence import HEALED, Evidence
from torchsan.fix.identity import keeps_definitions
from torchsan.fix.onlookers import seen_by_others
from torchsan.fix.outcome import Mend, Outcome
from torchsan.fix.proof import BY_REFERENCE, MAYBE_BY_REFERENCE, Case, Verdict
from torchsan.fix.sharing import meant_to_stay, named_twice, still_shared
from torchsan.fix.source import Edit, Source, real
from torchsan.fix.trial import Alias, Trial
from torchsan.fix.unrun import gap
from torchsan.fix.unseen import still_unseen
from torchsan.model import Finding
from torchsan.model.source import real_path

if TYPE_CHECKING:
    from torchsan.fix.engine import Engine


@dataclass(frozen=True, slots=True)
class Claim:
    """Edits that are about to be called verified: the program with them, its run, and what they were made for."""

    changed: dict[str, Source]
    run: Trial
    mended: list[tuple[Candidate, Finding, list[Alias]]]
    # They equal the program as it was, with saved values kept.
    equal: bool
    # One of them takes the write away from a holder that is to keep its value.
    kept: bool = False


def settle(engine: Engine, outcome: Outcome) -> None:
    last = outcome.last
    assert last is not None
    _steps(engine, last, outcome)
    shaky = False
    for mend in outcome.accepted:
        if shaky and mend.proved and mend.verdict is not None:
            mend.verdict = Verdict("runs", f"proved only on top of an edit that is not: {mend.verdict.words}")
        shaky = shaky or not mend.proved
    proved = [mend for mend in outcome.accepted if mend.proved]
    if proved and len(proved) == len(outcome.accepted):
        _whole_claim(engine, last, proved)
    _tell_what_is_left(outcome)


def _tell_what_is_left(outcome: Outcome) -> None:
    """An edit that is right for its own fault does not make the program right as long as others stand."""
    left = [mend.finding for mend in outcome.mends if not mend.proved]
    words = ", ".join(dict.fromkeys(f"{found.code} at line {found.primary.line}" for found in left))
    for mend in outcome.mends if words else ():
        if mend.proved and mend.verdict is not None:
            mend.verdict = replace(mend.verdict, words=f"{mend.verdict.words}; not mended: {words}")


def _steps(engine: Engine, last: Trial, outcome: Outcome) -> None:
    """Edits that were but a step towards a clean program count only if the steps after them led there."""
    whole: Verdict | None = None
    for mend in outcome.accepted:
        assert mend.verdict is not None
        if last.failed:
            # No edit is called verified as long as its program ends in an error.
            words = "this fault is gone, but not proved: the program still stops at another one"
            mend.verdict = Verdict("progress", words)
        elif mend.verdict.kind == "progress" and mend.verdict.equal:
            mend.verdict = Verdict("proved", mend.verdict.words, equal=True)
        elif mend.verdict.kind == "progress":
            whole = whole or _as_a_whole(engine, last, outcome)
            mend.verdict = whole
    for mend in outcome.accepted:
        if mend.verdict is whole is not None and not all(other.proved for other in outcome.accepted):
            mend.verdict = Verdict("runs", "runs, not proved: it was tried together with an edit that is not proved")


def _as_a_whole(engine: Engine, last: Trial, outcome: Outcome) -> Verdict:
    """All edits together against the program as it was, with saved values kept and refused writes made."""
    codes = {mend.finding.code for mend in outcome.accepted}
    if codes <= BY_REFERENCE | MAYBE_BY_REFERENCE:
        first = engine.first_reference()
        if not first.failed and not first.astride and not first.meanings and not compare(first, last, How()):
            slopes = engine.trial(dict(engine.changed), "slopes").slopes if last.passes else []
            if not last.passes or (slopes and all(one.agree() for one in slopes)) or codes <= BY_REFERENCE:
                return Verdict("proved", f"together with the other edits it runs; {told(last, HEALED)}", equal=True)
    words = _weighed(engine, last, outcome)
    if words:
        return Verdict("proved", words)
    return Verdict("runs", "runs, not proved: the fault is gone together with the other edits")


def _weighed(engine: Engine, last: Trial, outcome: Outcome) -> str:
    """All edits as if they were one, each fault by the evidence of its kind."""
    if len(engine.changed) != 1 or any(mend.finding.code[:3] not in ("TS1", "TS2") for mend in outcome.accepted):
        return ""
    [(path, new)] = engine.changed.items()
    evidence = Evidence(engine.trial, Sources().get, {}, engine.tell)
    words = ""
    for mend in outcome.accepted:
        case = Case(mend.finding, outcome.first, engine.first_reference(), last, engine.files[path], new)
        verdict = evidence.weigh(case)
        if verdict.kind != "proved":
            return ""
        words = words or verdict.words
    return f"together with the other edits it {words}"


def _whole_claim(engine: Engine, last: Trial, proved: list[Mend]) -> None:
    """All edits once more as one."""
    equal = all(mend.verdict is not None and mend.verdict.equal for mend in proved)
    run = {path: source for path, source in engine.proved.items() if path in engine.changed}
    kept = any(mend.verdict is not None and mend.verdict.kept for mend in proved)
    why = unsaid(engine, Claim(engine.changed, last, [_told(mend) for mend in proved], equal, kept), run)
    for mend in proved if why else ():
        assert mend.verdict is not None
        mend.verdict = Verdict("runs", f"runs, not proved: {why}", equal=mend.verdict.equal)


def _told(mend: Mend) -> tuple[Candidate, Finding, list[Alias]]:
    assert mend.candidate is not None
    return mend.candidate, mend.finding, list(mend.aliases)


# -- one claim ------------------------------------------------------------------------------------------------


def unsaid(engine: Engine, claim: Claim, run: dict[str, Source] | None = None) -> str:
    """Why a claim must not be made, in words; what differs from `run`, if given, is safe by analysis alone."""
    if any(finding.code.startswith("TS3") for _, finding, _ in claim.mended) or claim.run.ranks > 1:
        return ""  # captures are compared on variants; processes side by side are not followed line by line
    if claim.run.hollow:
        return claim.run.hollow
    for one in claim.mended:
        why = named_twice(*one) or meant_to_stay(*one, engine.sources.get)
        why = why or ("" if claim.kept else seen_by_others(*one, engine.sources.get))
        if why:
            return why
    engine.tell("running the program as it will be")
    plain = engine.trial(dict(claim.changed), "lines")
    problem = compare(claim.run, plain, How(restless=engine.restless))
    if problem:
        return f"run again, {problem}"
    why = _unseen(engine, claim, plain)
    if why:
        return why
    old = {**claim.changed, **(run or {})}
    analysed = {path: [now for _, now in regions(old[path], new)] for path, new in claim.changed.items()}
    return gap(_edited(engine, claim.changed, plain, analysed), claim.mended, plain.idle) or _by_chance(engine, claim)


def _unseen(engine: Engine, claim: Claim, plain: Trial) -> str:
    """A write that autograd does not see stays one on a copy, too: then only differences of losses can speak for it."""
    found = [
        line
        for candidate, finding, _ in claim.mended
        for line in still_unseen(plain.unseen, finding, candidate.source, claim.changed)
    ]
    if not found or not claim.run.passes:
        return ""
    engine.tell("measuring gradients by differences of losses")
    slopes = engine.trial(dict(claim.changed), "slopes").slopes
    if slopes and all(one.agree() for one in slopes):
        return ""
    return f"autograd does not see the write at line {found[0][1]}, and its gradients are not differences of losses"


def _by_chance(engine: Engine, claim: Claim) -> str:
    """Why what was equal in one run is not so with other numbers; a program that fails with them tells nothing."""
    engine.tell("running both with other numbers")
    after = engine.trial(dict(claim.changed), "shaken watch")
    known = {(finding.code, finding.primary.line) for finding in claim.run.alarms}
    new = [f for f in after.alarms if (f.code, f.primary.line) not in known]
    if new and any(f.code in {finding.code for _, finding, _ in claim.mended} for f in new):
        return f"with other numbers {new[0].code} shows at line {new[0].primary.line}: {new[0].message}"
    shared = still_shared(claim.changed, claim.mended, after.aliases)
    if shared or not claim.equal:
        return shared
    before = engine.trial({}, "shaken")
    problem = "" if before.failed else compare(before, after, How(fewer=True, values=False, restless=engine.restless))
    return f"with other numbers it is not the run in which saved values are kept: {problem}" if problem else ""


def _edited(engine: Engine, changed: dict[str, Source], plain: Trial, analysed: dict[str, list[Range]]) -> Edited:
    files: dict[str, Source] = {}
    ran, again = ({real(real_path(p)): places for p, places in one.items()} for one in (plain.ran, plain.again))
    for path in ran:
        source = changed.get(path) or engine.sources.get(path)
        if source is not None:
            files[path] = source
    old = {path: engine.files.get(path) or engine.sources.files[path] for path in changed}
    return Edited(old, dict(changed), files, ran, again, analysed)


def where_no_run_came(candidate: Candidate, code: str) -> Candidate | None:
    """With the same edit on branches that the run did not take, as far as the source alone tells fault and cure."""
    after = candidate.result()
    if after is None or code not in BY_REFERENCE:
        return None
    more = static.mend(after.path, after.raw, unsafe=False, wanted=lambda found: found.code == code)
    if more is None or not keeps_definitions(candidate.source, more.after):
        return None
    title = f"{candidate.title}, and the same where this run did not come"
    return replace(candidate, title=title, edits=(Edit(0, len(candidate.source.text), more.after.text),))


def added_lines(before: Source, after: Source) -> str:
    found = [after.text.count("\n", 0, start) + 1 for _, (start, _) in regions(before, after)]
    return f"line{'s' * (len(found) != 1)} {', '.join(map(str, found))}"
