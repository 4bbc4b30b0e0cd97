"""How the rules on sharded parameters and DTensors make a finding of an event: by the words each has for its forms."""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.parallel_events import ShardTouched
from torchsan.rules import finding
from torchsan.rules.wording import idea

# The message, the label of the line, the label of the other line, why, and what to do.
Words = tuple[str, str, str, str, str]


def told(rule: dict[str, Any], said: dict[str, Words], event: Any) -> Finding | None:
    """The finding of the rule whose module's `globals()` are given, if it has words for this form."""
    if not isinstance(event, ShardTouched) or event.form not in said:
        return None
    message, label, other, why, advice = said[event.form]
    spans = [event.line.span("cause", label, primary=True)]
    if event.other is not None and other and event.other.place.line != event.line.place.line:
        spans.append(event.other.span("cause" if event.form == "parts-differ" else "needed", other))
    return finding(
        rule,
        message.format(event.memory.quoted, event.detail),
        spans,
        why=why,
        fixes=(idea(advice),),
    )
