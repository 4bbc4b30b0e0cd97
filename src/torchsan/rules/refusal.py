"""Spans for writes that torch refuses at once."""

from __future__ import annotations

from torchsan.model import Span
from torchsan.model.events import RefusedWrite


def refusal_spans(event: RefusedWrite, label: str, origin: str = "made here") -> list[Span]:
    """Where the tensor came from, the refused write, and who called it."""
    spans: list[Span] = []
    if event.origin is not None:
        spans.append(event.origin.span("origin", origin))
    if event.custom_write is not None:
        spans.append(event.custom_write.span("origin", "written here without ctx.mark_dirty"))
    if event.write.line is not None:
        spans.extend(event.write.line.spans("mutated", label, primary=True))
    if event.needed is not None:
        spans.append(event.needed.span("needed", "backward cannot pass that write, and fails here"))
    for caller in event.write.callers[:2]:
        if caller.function != "<module>" or len(event.write.callers) == 1:
            spans.append(caller.span("cause", "called from here"))
    return spans
