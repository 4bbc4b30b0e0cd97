"""All edits of one outcome: files before and after, and what of them was executed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from torchsan.fix.came import Came, Range, regions
from torchsan.fix.source import Source
from torchsan.fix.trial import Ran

# Layers that never ran: their kind and their path.
Idle = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Edited:
    """All edits of one outcome: files before and after, and what of them was executed."""

    old: dict[str, Source]
    new: dict[str, Source]
    # Every file of the user's that the run executed, as it stands after the edits.
    files: dict[str, Source]
    ran: Ran
    # What was executed again in another turn of a loop.
    again: Ran
    # What was put in by analysis, where no run came; it speaks for itself.
    by_analysis: dict[str, list[Range]]

    @cached_property
    def came(self) -> dict[str, Came]:
        return {path: Came(source, self.ran) for path, source in self.files.items()}

    def changed(self) -> Iterator[tuple[Came, Source, Range, Range]]:
        for path, new in self.new.items():
            came = self.came.get(path) or Came(new, self.ran)
            for was, now in regions(self.old[path], new):
                if not any(start <= now[0] and now[1] <= end for start, end in self.by_analysis.get(path, ())):
                    yield came, self.old[path], was, now
