"""Plain data that every other package speaks in. Imports nothing of ours and no torch."""

from torchsan.model.finding import LEVELS, Applicability, Certainty, Finding, Fix, Level
from torchsan.model.report import SCHEMA, Capture, Outcome, Report
from torchsan.model.span import Place, Role, Span

__all__ = [
    "LEVELS",
    "SCHEMA",
    "Applicability",
    "Capture",
    "Certainty",
    "Finding",
    "Fix",
    "Level",
    "Outcome",
    "Place",
    "Report",
    "Role",
    "Span",
]
