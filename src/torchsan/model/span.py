"""Places in source code, and the part each plays in a finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["origin", "saved", "aliased", "mutated", "needed", "cause"]


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of source: lines count from 1, columns from 1, the end column is exclusive."""

    path: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0
    function: str = ""

    def span(self, role: Role, label: str, *, primary: bool = False) -> Span:
        return Span(
            path=self.path,
            line=self.line,
            column=self.column,
            end_line=self.end_line or self.line,
            end_column=self.end_column or self.column,
            role=role,
            label=label,
            primary=primary,
        )

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Span:
    """A place with its role in a finding and the words shown beside it."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    role: Role
    label: str
    primary: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "end_line": self.end_line,
            "end_column": self.end_column,
            "role": self.role,
            "label": self.label,
            "primary": self.primary,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Span:
        return cls(**{name: data[name] for name in cls.__slots__})
