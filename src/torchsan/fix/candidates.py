"""Candidate edits for a finding: the rule names rewrites and the spans they apply to, cheapest first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from torchsan.errors import UsageError
from torchsan.fix.files import is_users
from torchsan.fix.identity import keeps_definitions
from torchsan.fix.source import Edit, Source, line_map, real
from torchsan.fix.trial import Alias, Aliases
from torchsan.model import Finding, Span
from torchsan.model.source import real_path
from torchsan.rules import all_rules


@dataclass(frozen=True, slots=True)
class Candidate:
    """One idea: edits to one file, in one sentence; with the rewrite that had it, and the span it had it for."""

    title: str
    source: Source
    edits: tuple[Edit, ...]
    rewrite: str = ""
    span: Span | None = None

    def result(self) -> Source | None:
        after = self.source.edited(self.edits)
        return after if after is not None and after.raw != self.source.raw else None


@dataclass(slots=True)
class Sources:
    """The files of the project as they stand after the edits accepted so far."""

    files: dict[str, Source] = field(default_factory=dict)
    # Names that share the memory which a line writes, as a healed run of these sources saw them.
    aliases: Aliases = field(default_factory=dict)

    def get(self, path: str) -> Source | None:
        key = real(real_path(path))
        if key not in self.files:
            if not os.path.isfile(key) or not is_users(key):
                return None
            try:
                self.files[key] = Source.read(key)
            except UsageError:
                return None
        return self.files[key]

    def with_file(self, source: Source) -> Sources:
        return Sources({**self.files, source.path: source}, self._moved_aliases(source))

    def _moved_aliases(self, new: Source) -> Aliases:
        old = self.files.get(new.path)
        lines = {was: now for now, was in line_map(old, new).items()} if old is not None else {}

        def moved(path: str, line: int) -> int:
            return lines.get(line, line) if path == new.path else line

        def follow(alias: Alias) -> Alias:
            by = tuple(replace(one, line=moved(one.path, one.line)) for one in alias.by)
            return replace(alias, line=moved(alias.path, alias.line), by=by)

        return {
            (path, moved(path, line)): [follow(alias) for alias in found]
            for (path, line), found in self.aliases.items()
        }


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a rewrite is asked for: a span of a finding, in its file."""

    source: Source
    span: Span
    finding: Finding
    sources: Sources

    @property
    def aliases(self) -> list[Alias]:
        return self.sources.aliases.get((self.source.path, self.span.line), [])

    def spots(self, *roles: str) -> Iterator[Spot]:
        """The finding's other spans of these roles that lie in files we may edit."""
        for span in self.finding.spans:
            source = self.sources.get(span.path) if span.role in roles else None
            if source is not None:
                yield Spot(source, span, self.finding, self.sources)


def candidates(finding: Finding, sources: Sources) -> Iterator[Candidate]:
    """Distinct candidates that parse, in the order in which they are to be tried."""
    from torchsan.fix.rewrites import REWRITES

    rule = all_rules().get(finding.code)
    seen: set[tuple[str, bytes]] = set()
    for role, name in rule.fixes if rule is not None else ():
        rewrite = REWRITES.get(name)
        if rewrite is None:
            continue  # rules of memory name rewrites of their own
        for span in finding.spans:
            source = sources.get(span.path) if span.role == role else None
            if source is None:
                continue
            for title, edits in rewrite(Spot(source, span, finding, sources)):
                candidate = Candidate(title, source, tuple(edits), name, span)
                after = candidate.result()
                if after is None or not keeps_definitions(source, after):
                    continue
                if (source.path, after.raw) not in seen:
                    seen.add((source.path, after.raw))
                    yield candidate
