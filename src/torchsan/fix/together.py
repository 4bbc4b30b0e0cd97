"""All overwritten values at once: the healed run tells them all, not only the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchsan.fix.candidates import Candidate
from torchsan.fix.compare import How, compare, told
from torchsan.fix.evidence import HEALED
from torchsan.fix.identity import Change, Place, maker, place
from torchsan.fix.onlookers import is_narrow
from torchsan.fix.outcome import Mend, as_written
from torchsan.fix.proof import BY_REFERENCE, Verdict
from torchsan.fix.settling import Claim, unsaid
from torchsan.fix.source import Edit, Source, real
from torchsan.fix.trial import Trial
from torchsan.model import Finding, Span
from torchsan.model.source import real_path

if TYPE_CHECKING:
    from torchsan.fix.engine import Engine

# Attempts to mend all at once before one is taken after another.
ATTEMPTS = 3
# Of more edits than these none is tried to be left out.
MOST_LEFT_OUT = 4
Key = tuple[Place | None, Place | None]
Idea = tuple[Finding, Candidate]
Ideas = list[tuple[Finding, list[Candidate]]]


def mend_together(engine: Engine, target: Finding, before: Trial) -> tuple[list[Mend], Trial | None]:
    """The first idea for every overwritten value; for those that it does not help, the next."""
    reference = engine.healed(target) if target.code in BY_REFERENCE else None
    others = _other_writes(engine, target, reference) if reference is not None else []
    if reference is None or not others:
        return [], None
    ideas = [(finding, engine.ideas(finding)) for finding in (target, *others)]
    first: Joint | None = None
    proved = False
    for known in (ideas, [(finding, _narrow(found)) for finding, found in ideas]):
        joint = _joint(engine, target, known, before)
        if joint is None or joint.run.failed or joint.run.alarms or reference.astride:
            continue
        if compare(reference, joint.run, How()):
            continue
        joint = _needed(engine, joint, reference)
        first = first or joint
        proved = not _unsaid(engine, joint)
        if proved:
            first = joint
            break
    if first is None or not (proved or len(first.chosen) > 1):
        return [], None  # a single edit: there may be a better one
    mends = _accepted(engine, first.chosen, first.changed, first.run)
    mends[0].cost_bytes = first.run.extra(before)
    return mends, first.run


@dataclass(frozen=True, slots=True)
class Joint:
    """Edits for several findings, and the program with all of them."""

    chosen: list[Idea]
    changed: dict[str, Source]
    run: Trial


def _narrow(found: list[Candidate]) -> list[Candidate]:
    """Edits that leave the write as it is for all others, where there are any."""
    return [one for one in found if is_narrow(one)] or found


def _joint(engine: Engine, target: Finding, ideas: Ideas, before: Trial) -> Joint | None:
    tried = {_key(engine, finding): 0 for finding, _ in ideas}
    chosen: list[Idea] = []
    changed: dict[str, Source] = {}
    after = before
    for _ in range(ATTEMPTS):
        numbered = [(finding, known, tried[_key(engine, finding)]) for finding, known in ideas]
        chosen = [(finding, known[number]) for finding, known, number in numbered if number < len(known)]
        changed = _merged([candidate for _, candidate in chosen])
        if len(chosen) < 2 or not changed:
            return None
        engine.tell(f"{target.code}: trying {len(chosen)} edits together")
        after = engine.trial({**engine.changed, **changed}, "watch")
        stubborn = {_key_before(engine, finding, changed) for finding in after.alarms} & set(tried)
        if not stubborn:
            break
        tried.update({key: tried[key] + 1 for key in stubborn})
    return Joint(chosen, changed, after)


def _needed(engine: Engine, joint: Joint, reference: Trial) -> Joint:
    """Without the edits that are not needed: one write may be behind several findings."""
    for idea in reversed(joint.chosen):
        rest = [one for one in joint.chosen if one is not idea]
        changed = _merged([candidate for _, candidate in rest])
        if not changed or len(joint.chosen) > MOST_LEFT_OUT:
            continue
        run = engine.trial({**engine.changed, **changed}, "watch")
        if not run.failed and not run.alarms and not compare(reference, run, How()):
            joint = Joint(rest, changed, run)
    return joint


def _unsaid(engine: Engine, joint: Joint) -> str:
    mended = [(candidate, finding, engine.aliases_of(finding)) for finding, candidate in joint.chosen]
    return unsaid(engine, Claim({**engine.changed, **joint.changed}, joint.run, mended, equal=True))


def _accepted(engine: Engine, chosen: list[Idea], changed: dict[str, Source], after: Trial) -> list[Mend]:
    words = f"runs; {told(after, HEALED)}"
    mends = []
    for finding, candidate in chosen:
        mend = Mend(as_written(finding, engine.sources, engine.files), candidate)
        mend.verdict = Verdict("proved", words, equal=True)
        mend.aliases = engine.aliases_of(finding)
        engine.files.setdefault(candidate.source.path, candidate.source)
        mends.append(mend)
    for source in changed.values():
        engine.take(source)
    return mends


def _key(engine: Engine, finding: Finding) -> Key:
    """The write, and the layer that makes it: two layers may write at one call."""
    source, made = engine.sources.get(finding.primary.path), maker(finding)
    layer = place(engine.sources.get(made.path), made) if made is not None else None
    return place(source, finding.primary), layer


def _key_before(engine: Engine, finding: Finding, changed: dict[str, Source]) -> Key:
    """Where the write of a finding stood before the edits."""

    def before(span: Span | None) -> Place | None:
        path = real(real_path(span.path)) if span is not None else ""
        old, new = engine.sources.get(path), changed.get(path)
        return Change(old, new).before(span) if old is not None and new is not None else place(old, span)

    return before(finding.primary), before(maker(finding))


def _other_writes(engine: Engine, target: Finding, reference: Trial) -> list[Finding]:
    """Findings of the healed run about other writes than this one, one for each write."""
    seen = {_key(engine, target)}
    found = []
    for finding in reference.alarms:
        if finding.code in BY_REFERENCE and _key(engine, finding) not in seen:
            seen.add(_key(engine, finding))
            found.append(finding)
    return found


def _merged(chosen: list[Candidate]) -> dict[str, Source]:
    """The files after all edits of several candidates; nothing when they get in each other's way."""
    edits: dict[str, tuple[Source, set[Edit]]] = {}
    for candidate in chosen:
        edits.setdefault(candidate.source.path, (candidate.source, set()))[1].update(candidate.edits)
    merged = {path: source.edited(all_edits) for path, (source, all_edits) in edits.items()}
    return {path: source for path, source in merged.items() if source is not None} if all(merged.values()) else {}
