"""Unified diffs read back: which lines of which file give way to what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")


@dataclass(slots=True)
class Edit:
    """`removed` lines from `line` on give way to `inserted` (whole lines with their ends)."""

    line: int
    removed: int = 0
    inserted: str = ""


def _path(header: str) -> str:
    name = header[4:].split("\t")[0].strip()
    return name[2:] if name.startswith(("a/", "b/")) else name


def _count(text: str | None) -> int:
    return 1 if text is None else int(text)


def _hunk(lines: Iterator[str], line: int, old: int, new: int) -> Iterator[Edit]:
    """The edits of one hunk, which holds `old` lines of the file from `line` on and gives `new`."""
    edit = Edit(line)
    while old > 0 or new > 0:
        text = next(lines, None)
        if text is None:
            break
        if text.startswith("-"):
            edit.removed, line, old = edit.removed + 1, line + 1, old - 1
        elif text.startswith("+"):
            edit.inserted, new = edit.inserted + text[1:] + "\n", new - 1
        elif not text.startswith("\\"):
            if edit.removed or edit.inserted:
                yield edit
            line, old, new = line + 1, old - 1, new - 1
            edit = Edit(line)
    if edit.removed or edit.inserted:
        yield edit


def edits(diff: str) -> dict[str, list[Edit]]:
    """The edits by file, in the order of lines; text that is no diff gives none."""
    found: dict[str, list[Edit]] = {}
    path = ""
    lines = iter(diff.splitlines())
    for text in lines:
        if text.startswith("+++ "):
            path = _path(text)
        elif path and (hunk := _HUNK.match(text)):
            old, new = _count(hunk[2]), _count(hunk[3])
            # A hunk that holds no line of the file names the line after which it inserts.
            start = int(hunk[1]) + (old == 0)
            found.setdefault(path, []).extend(_hunk(lines, start, old, new))
    return found
