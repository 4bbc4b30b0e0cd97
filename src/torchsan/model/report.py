"""Everything one invocation has to say; its JSON is the contract with CI and editors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from torchsan.model.finding import Finding
from torchsan.model.memory import Memory, TriedEdits
from torchsan.model.timeline import Timeline

SCHEMA = "torchsan/1"

# What `summary()` counts by itself; anything else in a summary is `extra`.
_SUMMARY = ("errors", "warnings", "notes", "by_code", "remarks")

Outcome = Literal["faithful", "unfaithful", "unfinished", "failed"]


@dataclass(frozen=True, slots=True)
class Capture:
    """How one way of capturing a model fared against eager."""

    method: str
    outcome: Outcome
    tried: int = 0
    counterexample: str | None = None
    finding: int | None = None
    artifact: str | None = None
    checks: dict[str, str] = field(default_factory=dict)
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Capture:
        return cls(**{name: data[name] for name in cls.__slots__ if name in data})


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a run of several, and how it ended."""

    rank: int | None
    pid: int
    role: str
    outcome: str

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Process:
        return cls(data["rank"], data["pid"], data["role"], data["outcome"])


@dataclass(slots=True)
class Report:
    """Findings in the order in which they were met, equal ones merged with a count."""

    command: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    captures: list[Capture] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    torch: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    timeline: Timeline | None = None
    processes: list[Process] = field(default_factory=list)
    memory: Memory | None = None
    tried: TriedEdits | None = None

    def add(self, finding: Finding) -> bool:
        """Keep a finding; one like it is counted with it, and may make it surer. True when there is news."""
        for index, known in enumerate(self.findings):
            if known.is_like(finding):
                self.findings[index] = known.together(finding)
                return known.certainty == "possible" and finding.certainty != "possible"
        self.findings.append(finding)
        return True

    def extend(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.add(finding)

    def visible(self, *, possible: bool = False) -> list[Finding]:
        return [f for f in self.findings if possible or f.certainty != "possible"]

    @property
    def alarms(self) -> list[Finding]:
        """Findings that ask for action: errors and warnings that are not mere possibilities."""
        return [f for f in self.visible() if f.level != "note"]

    def summary(self) -> dict[str, Any]:
        levels = Counter(finding.level for finding in self.findings)
        return {
            "errors": levels["error"],
            "warnings": levels["warning"],
            "notes": levels["note"],
            "by_code": dict(sorted(Counter(finding.code for finding in self.findings).items())),
            **self.extra,
        }

    def as_json(self) -> dict[str, Any]:
        import platform

        from torchsan.version import __version__

        data = {
            "schema": SCHEMA,
            "tool": {"version": __version__, "torch": self.torch, "python": platform.python_version()},
            "command": list(self.command),
            "findings": [finding.as_json() for finding in self.findings],
            "captures": [capture.as_json() for capture in self.captures],
            "summary": {**self.summary(), "remarks": list(self.notes)},
        }
        if self.tried is not None:
            data["memory_edits"] = self.tried.as_json()
        if self.processes:
            data["processes"] = [process.as_json() for process in self.processes]
        if self.timeline is not None:
            data["timeline"] = self.timeline.as_json()
        if self.memory is not None:
            data["memory"] = self.memory.as_json()
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Report:
        if data.get("schema") != SCHEMA:
            raise ValueError(f"expected schema {SCHEMA!r}, found {data.get('schema')!r}")
        return cls(
            command=list(data["command"]),
            findings=[Finding.from_json(finding) for finding in data["findings"]],
            captures=[Capture.from_json(capture) for capture in data["captures"]],
            notes=list(data["summary"].get("remarks", [])),
            torch=data["tool"]["torch"],
            extra={name: data["summary"][name] for name in data["summary"] if name not in _SUMMARY},
            timeline=Timeline.from_json(data["timeline"]) if "timeline" in data else None,
            processes=[Process.from_json(process) for process in data.get("processes", [])],
            memory=Memory.from_json(data["memory"]) if "memory" in data else None,
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from torchsan.report.notebook import fragment

        return fragment(self)
