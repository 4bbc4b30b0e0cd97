"""What the search for a fix found out, and how it is told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torchsan.fix.candidates import Candidate, Sources
from torchsan.fix.files import is_users
from torchsan.fix.proof import Verdict
from torchsan.fix.source import Source, diff, line_map, real
from torchsan.fix.trial import Alias, Trial
from torchsan.model import Applicability, Finding, Fix, Span
from torchsan.model.source import real_path, shown_path
from torchsan.rules import all_rules


@dataclass(slots=True)
class Mend:
    """A finding, the edit that mends it, and what else was tried."""

    finding: Finding
    candidate: Candidate | None = None
    # The best edit that could not be proved, where the program runs without it.
    idea: Candidate | None = None
    verdict: Verdict | None = None
    cost_bytes: int = 0
    # Who else held the memory that was written, as the healed run saw it.
    aliases: list[Alias] = field(default_factory=list)
    dropped: list[tuple[str, str]] = field(default_factory=list)

    @property
    def accepted(self) -> bool:
        return self.candidate is not None

    @property
    def proved(self) -> bool:
        return self.verdict is not None and self.verdict.kind == "proved"

    def shown(self) -> Finding:
        """The finding with its fix: the proved edit, else the ideas that nobody could prove."""
        chosen = self.candidate or self.idea
        if chosen is None or self.verdict is None:
            notes = tuple(f"tried and dropped: {title} ({_short(why)})" for title, why in self.dropped[:4])
            if notes:
                notes = (f"no edit could be proved, of {len(self.dropped)} that were tried", *notes)
            else:
                notes = (_why_not(self.finding),)
            return replace(self.finding, notes=self.finding.notes + notes)
        after = chosen.result()
        assert after is not None
        tried = [{"title": title, "why": why} for title, why in self.dropped]
        proof = {"summary": self.verdict.words, "equals_reference": self.verdict.equal, "dropped": tried}
        label: Applicability = "verified" if self.proved else "unsafe"
        changes = diff(chosen.source, after)
        return replace(self.finding, fixes=(Fix(chosen.title, label, changes, self.cost_bytes, proof),))


def _why_not(finding: Finding) -> str:
    """One sentence for a finding without any candidate."""
    if not any(is_users(real(real_path(span.path))) for span in finding.spans):
        return "not mended: the lines are those of an installed library, which is never edited"
    rule = all_rules().get(finding.code)
    if rule is None or not rule.fixes:
        return f"not mended: what {finding.code} asks for is a decision that no edit can take"
    return "not mended: no rewrite is known for a line of this form"


def _short(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:159]}…"


@dataclass(slots=True)
class Outcome:
    """Everything that was found out."""

    first: Trial
    mends: list[Mend] = field(default_factory=list)
    files: dict[str, Source] = field(default_factory=dict)
    changed: dict[str, Source] = field(default_factory=dict)
    runs: int = 0
    forks: int = 0
    seconds: float = 0.0
    last: Trial | None = None

    @property
    def accepted(self) -> list[Mend]:
        return [mend for mend in self.mends if mend.accepted]

    def forget_what_is_gone(self) -> None:
        """A finding that could not be mended, but that the edits for others have ended."""
        left = {(f.code, f.message) for f in self.last.alarms} if self.last is not None else set()
        self.mends = [m for m in self.mends if m.accepted or (m.finding.code, m.finding.message) in left]

    @property
    def diff(self) -> str:
        return "".join(diff(self.files[path], source) for path, source in sorted(self.changed.items()))

    @property
    def clean(self) -> bool:
        return self.last is not None and not self.last.alarms and not self.last.failed

    def findings(self) -> list[Finding]:
        """What was mended or could not be, in the lines of the files as they are."""
        return [mend.shown() for mend in self.mends]


def as_written(finding: Finding, edited: Sources, files: dict[str, Source]) -> Finding:
    """A finding of an edited program, told in the lines of the files on disk."""
    maps: dict[str, dict[int, int]] = {}
    for path, source in files.items():
        now = edited.files.get(path)
        if now is not None and now.raw != source.raw:
            maps[path] = line_map(source, now)
    return replace(finding, spans=tuple(_moved(span, maps) for span in finding.spans))


def _moved(span: Span, maps: dict[str, dict[int, int]]) -> Span:
    lines = maps.get(real(real_path(span.path)), {})
    # A line that an edit has put in is told by the nearest one above it.
    known = next((n for n in range(span.line, 0, -1) if n in lines), None)
    shift = lines[known] - known if known is not None else 0
    return replace(span, path=shown_path(span.path), line=span.line + shift, end_line=span.end_line + shift)
