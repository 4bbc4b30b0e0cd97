"""SARIF 2.1.0, the format in which code-scanning services and editors exchange findings."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from torchsan.model import Finding, Fix, Report, Span
from torchsan.model.source import real_path, source_line
from torchsan.report import Options
from torchsan.report.diffs import edits
from torchsan.report.words import ranks_words, remarks
from torchsan.version import __version__

SCHEMA_URI = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"


def _artifact(path: str) -> dict[str, Any]:
    """A file below the start is told relative to the root of the sources, as code scanning expects."""
    if path.startswith("<"):
        return {"uri": quote(path)}
    if os.path.isabs(path):
        return {"uri": PurePath(path).as_uri()}
    return {"uri": quote(PurePath(path).as_posix()), "uriBaseId": ROOT}


def _region(span: Span) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": max(1, span.line), "startColumn": max(1, span.column)}
    if (span.end_line, span.end_column) > (span.line, span.column):
        region |= {"endLine": span.end_line, "endColumn": max(1, span.end_column)}
    if text := source_line(span.path, span.line):
        region["snippet"] = {"text": text}
    return region


def _location(span: Span, index: int | None = None) -> dict[str, Any]:
    located: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": _artifact(span.path), "region": _region(span)},
        "message": {"text": span.label or span.role},
    }
    return located if index is None else {"id": index, **located}


def _fix(fix: Fix) -> dict[str, Any] | None:
    changes = [
        {
            "artifactLocation": _artifact(path),
            "replacements": [
                {
                    "deletedRegion": {
                        "startLine": edit.line,
                        "startColumn": 1,
                        "endLine": edit.line + edit.removed,
                        "endColumn": 1,
                    },
                    "insertedContent": {"text": edit.inserted},
                }
                for edit in in_file
            ],
        }
        for path, in_file in edits(fix.diff).items()
    ]
    if not changes:
        return None
    return {"description": {"text": f"{fix.title} ({fix.applicability})"}, "artifactChanges": changes}


def _fingerprint(finding: Finding) -> str:
    """Stays the same when lines move: the code, the file and what the line says."""
    at = finding.primary
    parts = (finding.code, at.path, source_line(at.path, at.line).strip())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _result(finding: Finding, rules: Sequence[str]) -> dict[str, Any]:
    others = [span for span in finding.spans if span is not finding.primary]
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rules.index(finding.code),
        "level": finding.level,
        "message": {"text": "\n".join([finding.message + ranks_words(finding), *remarks(finding)])},
        "locations": [_location(finding.primary)],
        "occurrenceCount": finding.count,
        "partialFingerprints": {"torchsanLine/v1": _fingerprint(finding)},
        "properties": {"certainty": finding.certainty},
    }
    if others:
        result["relatedLocations"] = [_location(span, index) for index, span in enumerate(others, 1)]
        steps = [{"location": _location(span)} for span in finding.spans]
        result["codeFlows"] = [{"threadFlows": [{"locations": steps}]}]
    if fixes := [made for fix in finding.fixes if (made := _fix(fix))]:
        result["fixes"] = fixes
    return result


def _rule(code: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """The rule as code scanning shows it; a rule we do not know (a newer file) still has its name."""
    from torchsan.rules import find_rule

    known = find_rule(code)
    example = next(finding for finding in findings if finding.code == code)
    described: dict[str, Any] = {
        "id": code,
        "name": "".join(word.capitalize() for word in example.name.split("-")) or code,
        "shortDescription": {"text": known.title if known else example.name or code},
        "defaultConfiguration": {"level": known.level if known else example.level},
    }
    if known:
        described["help"] = {"text": known.page, "markdown": known.page}
    return described


def _driver(findings: Sequence[Finding], rules: Sequence[str]) -> dict[str, Any]:
    return {
        "name": "torchsan",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(code, findings) for code in rules],
    }


def render(report: Report, options: Options) -> str:
    findings = report.visible(possible=options.possible)
    rules = sorted({finding.code for finding in findings})
    invocation: dict[str, Any] = {"executionSuccessful": True}
    if report.command:
        invocation["commandLine"] = shlex.join(report.command)
    if report.notes:
        invocation["toolExecutionNotifications"] = [
            {"level": "note", "message": {"text": note}} for note in report.notes
        ]
    run = {
        "tool": {"driver": _driver(findings, rules)},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"uri": PurePath(real_path("")).as_uri().rstrip("/") + "/"}},
        "invocations": [invocation],
        "results": [_result(finding, rules) for finding in findings],
    }
    log = {"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"
