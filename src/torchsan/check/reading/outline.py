"""Functions and classes of a file by position, read from its text without parsing it."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Definition:
    """A `def` or `class`: where its text starts and ends."""

    indent: int
    kind: str
    name: str
    start: int
    line: int
    end: int = 0
    owner: Definition | None = None


# Two searches that begin with a word: four times as fast as one for the start of lines.
_KEYWORDS = (re.compile(r"def +(\w+)"), re.compile(r"class +(\w+)"))


def outline_of(text: str) -> list[Definition]:
    """Functions and classes by position, found by their keyword at the start of a line."""
    spots: list[tuple[int, int, str, str]] = []
    for keyword in _KEYWORDS:
        for match in keyword.finditer(text):
            at = match.start()
            start = text.rfind("\n", 0, at) + 1
            indent = text[start:at]
            bare = indent.strip()
            if not bare or bare == "async":
                width = indent.index(bare) if bare else len(indent)
                spots.append((start, width, "def" if text[at] == "d" else "class", match[1]))
    spots.sort()
    outline: list[Definition] = []
    stack: list[Definition] = []
    line, seen = 1, 0
    for start, width, kind, name in spots:
        line += text.count("\n", seen, start)
        seen = start
        while stack and stack[-1].indent >= width:
            stack.pop().end = start
        made = Definition(width, kind, name, start, line, len(text))
        made.owner = stack[-1] if stack else None
        stack.append(made)
        outline.append(made)
    return outline


def body_of(text: str, definition: Definition) -> str:
    """The text of a definition at the left margin, without the decorators of the next one."""
    after = text.find("\n@", definition.start, definition.end)
    return text[definition.start : after + 1 if after >= 0 else definition.end]


# A line at the left margin that ends a definition.
_OUTSIDE = re.compile(r"\n[A-Za-z_]")


def located(
    text: str, outline: list[Definition], writes: list[tuple[str, int]]
) -> tuple[list[tuple[Definition, str, int]], bool]:
    """Each write with the outermost function around it, and whether some stand outside of all definitions."""
    starts = [d.start for d in outline]
    last = next((d for d in reversed(outline) if d.indent == 0), None)
    script = _end_of(text, last)
    found, outside = [], False
    for target, at in writes:
        index = bisect_right(starts, at) - 1
        inside = outline[index] if index >= 0 else None
        if inside is None or at >= script or not text[at : at + 1].isspace():
            outside = True
            continue
        outermost: Definition | None = None
        while inside is not None:
            # Nested functions run inside the outer one.
            if inside.kind == "def" and at < inside.end:
                outermost = inside
            inside = inside.owner
        if outermost is not None:
            found.append((outermost, target, at))
    return found, outside


def _end_of(text: str, last: Definition | None) -> int:
    """Where the last definition of the file ends and the script, if there is one, begins."""
    match = _OUTSIDE.search(text, last.start + 1) if last is not None else None
    return match.start() + 1 if match is not None else len(text)


def without_grad(text: str, definition: Definition) -> bool:
    """Whether a decorator switches gradients off."""
    end = definition.start
    while end > 0:
        start = text.rfind("\n", 0, end - 1) + 1
        line = text[start:end].strip()
        if not line.startswith(("@", ")")):
            return False
        if "no_grad" in line or "inference_mode" in line:
            return True
        end = start
    return False
