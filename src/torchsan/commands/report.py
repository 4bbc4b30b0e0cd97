"""`torchsan report FILE.json`: a report that was written as JSON, shown in another format."""

from __future__ import annotations

import argparse
import json
from typing import Any

from torchsan.commands.output import CLEAN, FOUND, add_output_options, check_output, emit
from torchsan.errors import UsageError
from torchsan.model import LEVELS, SCHEMA, Finding, Report


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a report written with --format json")
    add_output_options(parser)


def _parsed(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise UsageError(f"{path} is not JSON") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path} cannot be read as a report") from None


def _check(finding: Finding) -> None:
    """What renderers rely on and JSON does not promise."""
    texts = [finding.code, finding.name, finding.message, finding.why, *finding.notes]
    texts += [text for span in finding.spans for text in (span.path, span.label, span.role)]
    numbers = [n for span in finding.spans for n in (span.line, span.column, span.end_line, span.end_column)]
    numbers.append(finding.count)
    if not finding.spans or finding.level not in LEVELS:
        raise ValueError("a finding without places or with an unknown level")
    if not all(isinstance(text, str) and "\0" not in text for text in texts):
        raise TypeError("text expected")
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise TypeError("number expected")


def load(path: str) -> Report:
    """The report in a JSON file; anything else is a UsageError that says so."""
    data = _parsed(path)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise UsageError(f"{path} is not a torchsan report (no schema {SCHEMA!r})")
    try:
        report = Report.from_json(data)
        for finding in report.findings:
            _check(finding)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise UsageError(f"{path} is a torchsan report with parts missing or wrong") from None
    return report


def execute(args: argparse.Namespace) -> int:
    check_output(args)
    report = load(args.file)
    emit(report, args)
    return FOUND if report.alarms else CLEAN
