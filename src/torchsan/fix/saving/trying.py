"""Tries each piece of advice: first whether everything stays equal, then what it saves and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

from torchsan.errors import UsageError
from torchsan.fix.candidates import Sources
from torchsan.fix.compare import How, Restless, compare, restless, told
from torchsan.fix.labs import Lab
from torchsan.fix.saving.advice import Idea, ideas
from torchsan.fix.saving.notes import noted
from torchsan.fix.source import Source, diff, real
from torchsan.fix.trial import Trial
from torchsan.model.memory import Memory, TriedEdit, TriedEdits
from torchsan.model.source import real_path

AS_IT_IS = "those of the program as it is"
# A difference that is smaller than this share is no help.
LEAST = 0.01
# Ideas that failed together and are then tried one by one.
MOST_ALONE = 6


@dataclass(slots=True)
class Tried:
    """What came of some ideas taken together."""

    ideas: list[Idea]
    row: TriedEdit
    changed: dict[str, Source] = field(default_factory=dict)


class Saver:
    def __init__(self, lab: Lab, *, budget: int = 60, tell: Callable[[str], None] = lambda _: None) -> None:
        self.lab = lab
        self.budget = budget
        self.tell = tell
        self.sources = Sources()
        self._restless: Restless | None = None
        self.changed: dict[str, Source] = {}
        self.before: dict[str, Source] = {}

    def run(self) -> TriedEdits:
        self.tell("running the program as it is")
        self._first = self.lab.run({}, "watch")
        if self._first.failed:
            raise UsageError(f"the program fails, so that nothing can be compared: {_why(self._first)}")
        if self._first.alarms:
            found = self._first.alarms[0]
            raise UsageError(f"mend {found.code} first ({found.message}): torchsan fix without --memory does")
        trial = self.lab.run({}, "memory")
        measured = trial.memory
        if measured is None or measured.peak is None:
            raise UsageError("the program makes no backward pass, so nothing is kept for one")
        self._measured: Memory = measured
        table = TriedEdits(measured.peak.kept_bytes, measured.followed.bytes if measured.followed else 0)
        tried: list[Tried] = []
        of_notes = ([idea] for idea in noted(trial.findings, self.sources))
        for group in chain(ideas(measured, self.sources, self._paths(measured)), of_notes):
            tried += self._group(group)
        helping = [one for one in tried if one.row.outcome == "helps"]
        table.edits = [one.row for one in sorted(tried, key=lambda one: (one.row.outcome, one.row.kept_bytes))]
        best = min(helping, key=lambda one: one.row.peak_bytes + one.row.kept_bytes, default=None)
        if len(helping) > 1:
            together = self._try([idea for one in helping for idea in one.ideas])
            if together is not None and together.row.outcome == "helps":
                table.together, best = together.row, together
        if best is not None:
            self.changed = best.changed
            self.before = {path: source for path in best.changed if (source := self.sources.get(path)) is not None}
        table.runs = self.lab.runs
        return table

    def _paths(self, memory: Memory) -> list[str]:
        """The program's own files that compute something."""
        named = [row.path for row in memory.kept] + [row.call[0] for row in memory.modules if row.call]
        return list(dict.fromkeys(real(real_path(path)) for path in named if path))

    def _group(self, group: list[Idea]) -> list[Tried]:
        """All of one kind; where they fail together, each alone."""
        if not group or self.lab.runs >= self.budget:
            return []
        whole = self._try(group)
        if whole is None:
            return []
        if len(group) == 1 or whole.row.outcome != "refused":
            return [whole]
        alone = [one for idea in group[:MOST_ALONE] if (one := self._try([idea])) is not None]
        good = [one for one in alone if one.row.outcome != "refused"]
        if len(good) < 2:
            return alone
        merged = self._try([idea for one in good for idea in one.ideas])
        refused = [one for one in alone if one.row.outcome == "refused"]
        return [merged, *refused] if merged is not None and merged.row.outcome != "refused" else alone

    def _try(self, group: list[Idea]) -> Tried | None:
        changed = _merged(group)
        if changed is None or self.lab.runs >= self.budget:
            return None
        advice, title = group[0].advice, _title(group)
        self.tell(f"trying {title}")
        after = self.lab.run(changed, "watch")
        problem = self._differs(after, changed)
        if problem:
            return Tried(group, TriedEdit(title, advice, "refused", why=problem), changed)
        memory = self.lab.run(changed, "memory").memory
        if memory is None or memory.peak is None:
            return Tried(group, TriedEdit(title, advice, "refused", why="it could not be measured"), changed)
        return Tried(group, self._row(title, advice, memory, after, changed), changed)

    def _differs(self, after: Trial, changed: dict[str, Source]) -> str:
        if after.failed:
            return f"the program fails: {_why(after)}"
        if after.alarms:
            return f"it brings {after.alarms[0].code}: {after.alarms[0].message}"
        problem = compare(self._first, after, How(restless=self._restless or Restless()))
        if problem and self._restless is None:
            self._restless = restless(after, self.lab.run(changed, "watch"))
            problem = compare(self._first, after, How(restless=self._restless))
        return problem

    def _row(self, title: str, advice: str, memory: Memory, after: Trial, changed: dict[str, Source]) -> TriedEdit:
        was, now = self._measured, memory
        assert was.peak is not None
        assert now.peak is not None
        kept = now.peak.kept_bytes - was.peak.kept_bytes
        peak = now.followed.bytes - was.followed.bytes if was.followed and now.followed else 0
        ratio = now.step_seconds / was.step_seconds if was.step_seconds else 1.0
        saves = kept < -LEAST * was.peak.kept_bytes or (was.followed and peak < -LEAST * was.followed.bytes)
        worse = kept > LEAST * was.peak.kept_bytes or (was.followed and peak > LEAST * was.followed.bytes)
        outcome = "helps" if saves and not worse else "folklore"
        shown = "\n".join(
            diff(source, new) for path, new in changed.items() if (source := self.sources.get(path)) is not None
        )
        return TriedEdit(title, advice, outcome, kept, peak, ratio, told(after, AS_IT_IS), shown)


def _merged(group: list[Idea]) -> dict[str, Source] | None:
    files: dict[str, tuple[Source, list[object]]] = {}
    for idea in group:
        files.setdefault(idea.source.path, (idea.source, []))[1].extend(idea.edits)
    changed: dict[str, Source] = {}
    for path, (source, edits) in files.items():
        after = source.edited(edits)  # type: ignore[arg-type]
        if after is None:
            return None
        changed[path] = after
    return changed


def _title(group: list[Idea]) -> str:
    if len(group) == 1:
        return group[0].title
    kinds = list(dict.fromkeys(idea.advice for idea in group))
    if len(kinds) > 1:
        return " and ".join(kinds)
    return f"{kinds[0]}: {len(group)} places ({group[0].title}, …)"


def _why(trial: Trial) -> str:
    error = trial.error if len(trial.error) <= 120 else trial.error[:119] + "…"
    return error or f"it exits with {trial.exit_code or trial.status}"
