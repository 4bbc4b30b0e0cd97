"""`# torchsan: ignore[TS101] reason` on a line of a finding keeps it quiet."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchsan.model import Finding

MARK = "torchsan: ignore"
_COMMENT = re.compile(r"#\s*torchsan:\s*ignore(?:\[([^\]]*)\])?[ \t]*(.*)$")


@dataclass(frozen=True, slots=True)
class Suppression:
    line: int
    codes: tuple[str, ...]
    reason: str


def suppressions(text: str) -> list[Suppression]:
    if "torchsan:" not in text:
        return []
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = _COMMENT.search(line) if "torchsan:" in line else None
        if match is not None:
            codes = tuple(c.strip().upper() for c in (match.group(1) or "").split(",") if c.strip())
            found.append(Suppression(number, codes, match.group(2).strip(" -:")))
    return found


def apply(findings: list[Finding], marks: list[Suppression]) -> tuple[list[Finding], list[str]]:
    """Findings that are not suppressed, and one remark for every mark that is bad or not needed."""
    used: set[int] = set()
    kept = []
    for finding in findings:
        lines = range(finding.primary.line, finding.primary.end_line + 1)
        mark = next((m for m in marks if m.line in lines and finding.code in m.codes), None)
        if mark is None:
            kept.append(finding)
        else:
            used.add(mark.line)
    remarks = []
    for mark in marks:
        if not mark.codes:
            remarks.append(f"{mark.line}: name the code to ignore: # {MARK}[TS101] reason")
        elif mark.line not in used:
            remarks.append(f"{mark.line}: nothing to ignore here: {', '.join(mark.codes)} is not reported")
        elif not mark.reason:
            remarks.append(f"{mark.line}: say why: # {MARK}[{', '.join(mark.codes)}] reason")
    return kept, remarks
