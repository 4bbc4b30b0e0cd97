"""Renderers: a report in, text out. They know nothing of how findings are made.

One module a format, each with `render(report, options) -> str`; a new format is a new module and a
line in `FORMATS`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from torchsan.model import Report

FORMATS = {
    "full": "torchsan.report.full",
    "concise": "torchsan.report.concise",
    "json": "torchsan.report.json_format",
    "sarif": "torchsan.report.sarif",
    "github": "torchsan.report.github",
    "junit": "torchsan.report.junit",
    "html": "torchsan.report.html",
}


@dataclass(frozen=True, slots=True)
class Options:
    """How to show a report."""

    color: bool = False
    width: int = 110
    possible: bool = False
    limit: int = 20


def render(report: Report, format: str = "full", options: Options | None = None) -> str:
    module = importlib.import_module(FORMATS[format])
    text: str = module.render(report, options or Options())
    return text
