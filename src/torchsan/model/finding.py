"""What a rule says: a finding, with its fixes and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torchsan.model.span import Span

Level = Literal["error", "warning", "note"]
Certainty = Literal["proved", "certain", "possible"]
Applicability = Literal["verified", "safe", "unsafe"]

LEVELS: tuple[Level, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Fix:
    """An edit that mends a finding, and what is known of it."""

    title: str
    applicability: Applicability = "unsafe"
    diff: str = ""
    cost_bytes: int = 0
    proof: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "applicability": self.applicability,
            "diff": self.diff,
            "cost_bytes": self.cost_bytes,
            "proof": dict(self.proof),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Fix:
        return cls(**{name: data[name] for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, where, why, and what to do about it."""

    code: str
    name: str
    level: Level
    certainty: Certainty
    message: str
    spans: tuple[Span, ...]
    why: str = ""
    notes: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    count: int = 1
    # On which ranks of a run of several processes.
    ranks: tuple[int, ...] = ()
    # What findings of one mistake have in common; empty where each is a mistake of its own.
    cause: tuple[object, ...] = ()

    @property
    def primary(self) -> Span:
        """The span that the finding is filed under: the marked one, else the first."""
        return next((span for span in self.spans if span.primary), self.spans[0])

    def span(self, role: str) -> Span | None:
        return next((span for span in self.spans if span.role == role), None)

    @property
    def key(self) -> tuple[object, ...]:
        """Findings with equal keys are one finding that happened several times."""
        return (self.code, *((span.path, span.line, span.column, span.role) for span in self.spans))

    def is_like(self, other: Finding) -> bool:
        """Is it the same finding, or another of the same mistake?"""
        return self.key == other.key or bool(self.cause and self.cause == other.cause)

    def together(self, other: Finding) -> Finding:
        """Both as one: the surer one's words, and the lines that write by the other as well."""
        surer = self.certainty == "possible" and other.certainty != "possible"
        first, second = (other, self) if surer else (self, other)
        known = {(span.path, span.line) for span in first.spans}
        more = (s for s in second.spans if s.role == "mutated" and (s.path, s.line) not in known)
        spans = (*first.spans, *(replace(span, primary=False) for span in more))
        return replace(first, spans=spans, count=self.count + other.count)

    def again(self, times: int = 1) -> Finding:
        return replace(self, count=self.count + times)

    def as_json(self) -> dict[str, Any]:
        notes = [f"why: {self.why}"] if self.why else []
        ranks = {"ranks": list(self.ranks)} if self.ranks else {}
        return {
            "code": self.code,
            "name": self.name,
            "level": self.level,
            "certainty": self.certainty,
            "message": self.message,
            "spans": [span.as_json() for span in self.spans],
            "notes": notes + list(self.notes),
            "count": self.count,
            "fixes": [fix.as_json() for fix in self.fixes],
            **ranks,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Finding:
        notes = list(data["notes"])
        why = notes.pop(0).removeprefix("why: ") if notes and notes[0].startswith("why: ") else ""
        return cls(
            code=data["code"],
            name=data["name"],
            level=data["level"],
            certainty=data["certainty"],
            message=data["message"],
            spans=tuple(Span.from_json(span) for span in data["spans"]),
            why=why,
            notes=tuple(notes),
            fixes=tuple(Fix.from_json(fix) for fix in data["fixes"]),
            count=data["count"],
            ranks=tuple(data.get("ranks", ())),
        )
