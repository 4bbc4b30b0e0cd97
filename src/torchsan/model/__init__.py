"""Plain data that every other package speaks in. Imports nothing of ours and no torch."""

from torchsan.model.finding import LEVELS, Applicability, Certainty, Finding, Fix, Level
from torchsan.model.report import SCHEMA, Capture, Outcome, Process, Report
from torchsan.model.span import Place, Role, Span
from torchsan.model.timeline import Kind, Lane, Moment, Timeline

__all__ = [
    "LEVELS",
    "SCHEMA",
    "Applicability",
    "Capture",
    "Certainty",
    "Finding",
    "Fix",
    "Kind",
    "Lane",
    "Level",
    "Moment",
    "Outcome",
    "Place",
    "Process",
    "Report",
    "Role",
    "Span",
    "Timeline",
]
