"""What the engine hands to the rules: the events a run would have shown, told from the source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torchsan.model import Certainty, Finding, Place
from torchsan.model.capture_events import Fault
from torchsan.model.events import Event
from torchsan.model.parallel_events import ParallelEvent

if TYPE_CHECKING:
    from torchsan.rules import Judge, Rule

# Families whose judgement of an event is the same wherever it was met.
_JUDGED_ALIKE = ("3", "4")


@dataclass(frozen=True, slots=True)
class Fact:
    """An event that the source leads to, filed under `at`, and how sure that is."""

    event: Event | ParallelEvent | Fault
    at: Place
    certainty: Certainty = "certain"
    # Answers, not known from the source, under which it happens.
    inside: tuple[tuple[str, bool], ...] = ()

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


def check_of(rule: Rule) -> Judge | None:
    """What a rule makes of a fact: its own check, or its judgement of the event, told as what the source shows."""
    judge = rule.judge
    if rule.check is not None or judge is None or rule.family not in _JUDGED_ALIKE:
        return rule.check

    def check(fact: Any, flow: Any) -> Finding | None:
        return stated(judge(fact.event, flow), fact)

    return check
