"""Edits for findings of `check`, judged without running: after them the same analysis finds less, and nothing new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from torchsan.check.analyse import analyse
from torchsan.check.choosing.files import source_of
from torchsan.errors import UsageError
from torchsan.fix.candidates import Candidate, Sources, candidates
from torchsan.fix.files import is_users
from torchsan.fix.safety import is_safe
from torchsan.fix.source import Source, diff, real
from torchsan.model import Applicability, Finding, Fix
from torchsan.model.source import real_path

# An edit costs an analysis of the file; more ideas than these are not worth it for one finding.
MOST_TRIED = 8
MOST_EDITS = 200


@dataclass(frozen=True, slots=True)
class Mended:
    """A file after all edits that were allowed, and the findings they mended, each with its edit."""

    before: Source
    after: Source
    findings: list[Finding]


def with_fixes(
    path: str, raw: bytes, wanted: list[Finding], found: list[Finding], *, possible: bool = False
) -> list[Finding]:
    """Some of all findings of one file, each with the edit that mends it where one is known."""
    source = _source(path, raw)
    if source is None:
        return wanted
    return [_with_fix(finding, source, found, possible=possible) for finding in wanted]


def mend(
    path: str, raw: bytes, *, unsafe: bool, wanted: Callable[[Finding], bool], possible: bool = False
) -> Mended | None:
    """Edit until nothing is left that an allowed edit could mend; None when nothing can be mended at all."""
    first = source = _source(path, raw)
    if first is None or source is None or not is_users(first.path):
        return None
    mended: list[Finding] = []
    while len(mended) < MOST_EDITS:
        found = _check(source, possible=possible)
        targets = [finding for finding in found if wanted(finding)]
        step = next(_allowed(targets, source, found, unsafe=unsafe, possible=possible), None)
        if step is None:
            break
        finding, fix, after = step
        mended.append(replace(finding, fixes=(fix,)))
        source = after
    return Mended(first, source, mended) if mended else None


def _source(path: str, raw: bytes) -> Source | None:
    try:
        return Source(real(real_path(path)), raw)
    except UsageError:
        return None


def _check(source: Source, *, possible: bool) -> list[Finding]:
    return analyse(source_of(source.path, source.raw), possible=possible).findings


def _with_fix(finding: Finding, source: Source, found: list[Finding], *, possible: bool) -> Finding:
    best = _best(finding, source, found, possible=possible)
    return finding if best is None else replace(finding, fixes=(best[0],))


def _allowed(
    targets: list[Finding], source: Source, found: list[Finding], *, unsafe: bool, possible: bool
) -> Iterator[tuple[Finding, Fix, Source]]:
    for finding in targets:
        best = _best(finding, source, found, possible=possible)
        if best is not None and (unsafe or best[0].applicability == "safe"):
            yield finding, *best


def _best(finding: Finding, source: Source, found: list[Finding], *, possible: bool) -> tuple[Fix, Source] | None:
    """The first safe edit, else the first edit, that takes the finding away and brings no other."""
    sources = Sources({source.path: source})
    known = Counter(map(_key, found))
    fallback: tuple[Fix, Source] | None = None
    for count, candidate in enumerate(candidates(finding, sources)):
        if count == MOST_TRIED:
            break
        safe = finding.certainty != "possible" and is_safe(candidate)
        after = candidate.result()
        if candidate.source is not source or after is None or (fallback is not None and not safe):
            continue
        left = Counter(map(_key, _check(after, possible=possible)))
        if left[_key(finding)] >= known[_key(finding)] or left - known:
            continue
        if safe:
            return _fix(candidate, after, "safe"), after
        fallback = _fix(candidate, after, "unsafe"), after
    return fallback


def _fix(candidate: Candidate, after: Source, label: Applicability) -> Fix:
    return Fix(candidate.title, label, diff(candidate.source, after))


def _key(finding: Finding) -> tuple[str, str]:
    """The same finding before and after an edit, which may have moved its lines."""
    return finding.code, finding.message
