"""One line a finding, for grep and for editors that read compilers' output."""

from __future__ import annotations

from torchsan.model import Finding, Report
from torchsan.report import Options


def _line(finding: Finding) -> str:
    at = finding.primary
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    return f"{at.path}:{at.line}:{at.column}: {finding.level}[{finding.code}] {finding.message}{times}"


def render(report: Report, options: Options) -> str:
    return "".join(_line(finding) + "\n" for finding in report.visible(possible=options.possible))
