"""What the engine hands to the rules: the events a run would have shown, told from the source."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torchsan.model import Certainty, Finding, Place
from torchsan.model.events import Event


@dataclass(frozen=True, slots=True)
class Fact:
    """An event that the source leads to, filed under `at`, and how sure that is."""

    event: Event
    at: Place
    certainty: Certainty = "certain"

    @property
    def key(self) -> tuple[object, ...]:
        reason = getattr(self.event, "reason", "")
        kind = getattr(getattr(self.event, "write", None), "kind", "")
        return (type(self.event).__name__, reason, kind, self.at.line, self.at.column)


@dataclass(frozen=True, slots=True)
class Flow:
    """The file in which a fact was met."""

    path: str


def stated(finding: Finding | None, fact: Fact) -> Finding | None:
    """What a rule says of an event, with the certainty of a fact: it follows, nobody saw it happen."""
    return None if finding is None else replace(finding, certainty=fact.certainty)
