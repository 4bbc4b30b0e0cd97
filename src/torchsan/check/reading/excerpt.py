"""The parts of a file that the suspects need, with every line where it was."""

from __future__ import annotations

from torchsan.check.reading.outline import Definition
from torchsan.check.reading.prefilter import Suspects

# Definitions that suspects mention, and what those mention in turn.
LEVELS = 2


def divided(text: str, chosen: Suspects) -> tuple[str, str]:
    """The text with every definition left blank that no suspect lies in or mentions, and those definitions."""
    tops = [d for d in chosen.outline if d.owner is None and d.indent == 0]
    if not tops:
        return text, ""
    starts = [_start(text, d, before.start if before else -1) for before, d in zip([None, *tops], tops, strict=False)]
    ends = [*starts[1:], len(text)]
    keep = _needed(text, tops, chosen)
    parts, rest = [text[: starts[0]]], []
    for top, start, end in zip(tops, starts, ends, strict=True):
        if top in keep:
            parts.append(text[start:end])
        else:
            parts.append("\n" * text.count("\n", start, end))
            rest.append(text[start:end])
    return "".join(parts), "".join(rest)


def _start(text: str, definition: Definition, before: int) -> int:
    """Decorators and comments stand above a definition without a blank line; so may the definition before."""
    start = text.rfind("\n\n", 0, definition.start) + 2 if definition.start else 0
    if start > before:
        return start
    start = definition.start
    while start > 0:
        above = text.rfind("\n", 0, start - 1) + 1
        if above <= before or text[above] not in "@#":
            break
        start = above
    return start


def _needed(text: str, tops: list[Definition], chosen: Suspects) -> set[Definition]:
    owners = set()
    for definition in chosen.outline:
        if definition.line in chosen.functions or definition.line in chosen.parsed:
            while definition.owner is not None:
                definition = definition.owner
            owners.add(definition)
    keep, edge = set(owners), owners
    for _ in range(LEVELS):
        others = [d for d in tops if d not in keep]
        edge = {d for d in others if any(_mentions(text, e, d.name) for e in edge)}
        keep |= edge
    return keep


def _mentions(text: str, definition: Definition, name: str) -> bool:
    start, end = definition.start, definition.end
    called = text.find(f"{name}(", start, end) >= 0 or text.find(f"{name}.apply(", start, end) >= 0
    return called or text.find(f"({name})", start, start + 200) >= 0
