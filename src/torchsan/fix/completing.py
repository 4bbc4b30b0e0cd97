"""An edit and what is shared beside it: found to matter by a run, mended with it where that can be proved."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torchsan.fix.beside import Beside, shared_beside
from torchsan.fix.candidates import Candidate
from torchsan.fix.compare import How, compare
from torchsan.fix.source import Edit, Source, line_map
from torchsan.fix.trial import Trial
from torchsan.model import Finding

if TYPE_CHECKING:
    from torchsan.fix.engine import Engine

# Faults that lie in memory that two holders share.
SHARING = {"TS203", "TS204", "TS205"}
# Places that are looked at one by one.
MOST_ALONE = 4


@dataclass(frozen=True, slots=True)
class Completed:
    """What became of a candidate."""

    candidate: Candidate
    run: Trial
    # What was mended with it, and what stays shared; in words.
    also: str = ""
    left: str = ""


def completed(engine: Engine, candidate: Candidate, target: Finding, after: Trial) -> Completed:
    """The candidate, with the same for what is shared beside it where that changes anything."""
    alone = Completed(candidate, after)
    new = candidate.result()
    places = shared_beside(candidate.source, new, target) if new is not None and target.code in SHARING else []
    if new is None or not places:
        return alone
    engine.tell("running it with copies for what is shared beside it")
    kept = _changed_by(engine, new, places, after)
    if kept is not None and kept.copies_written and any(one.handle for one in places):
        places = [one for one in places if not one.handle]
        kept = _changed_by(engine, new, places, after)
    if kept is None:
        return alone
    places = _that_matter(engine, new, places, after)
    lines = line_map(candidate.source, new)
    where = ", ".join(f"{one.what} at line {lines.get(one.line, one.line)}" for one in places)
    where += f" of {os.path.basename(new.path)}"
    if not kept.copies_written and all(one.mends for one in places):
        merged = new.edited(edit for one in places for edit in one.mends)
        run = engine.trial({**engine.changed, new.path: merged}, "watch") if merged is not None else None
        if merged is not None and run is not None and _is_right(engine, kept, run, after):
            text = Edit(0, len(candidate.source.text), merged.text)
            return Completed(replace(candidate, edits=(text,)), run, f"; mended with it: {where}")
    if all(one.handle for one in places):
        return replace(alone, left=f"what it copies has been written since it was taken: {where}")
    return replace(alone, left=f"memory is shared beside it, too, and stays so: {where}")


def _that_matter(engine: Engine, new: Source, places: list[Beside], after: Trial) -> list[Beside]:
    """First by their kind, then one by one."""
    kinds = [[one for one in places if one.handle == kind] for kind in (True, False)]
    if all(kinds):
        changing = [kind for kind in kinds if _changed_by(engine, new, kind, after) is not None]
        places = changing[0] if len(changing) == 1 else places
    if 1 < len(places) <= MOST_ALONE:
        places = [one for one in places if _changed_by(engine, new, [one], after) is not None] or places
    return places


def _changed_by(engine: Engine, new: Source, places: Iterable[Beside], after: Trial) -> Trial | None:
    """The run with copies at these places, if it differs from the one without."""
    copied = new.edited(edit for one in places for edit in one.copies)
    if copied is None or copied.raw == new.raw:
        return None
    kept = engine.trial({**engine.changed, new.path: copied}, "watch")
    same = kept.failed or not kept.copies or not compare(after, kept, How(more=True, restless=engine.restless))
    return None if same else kept


def _is_right(engine: Engine, kept: Trial, run: Trial, after: Trial) -> bool:
    known = {(found.code, found.message) for found in after.alarms}
    new = [found for found in run.alarms if (found.code, found.message) not in known]
    return not run.failed and not new and not compare(kept, run, How(more=True, fewer=True, restless=engine.restless))
