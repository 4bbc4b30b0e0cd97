"""One line a finding, for grep and for editors that read compilers' output."""

from __future__ import annotations

from torchsan.model import Finding, Report
from torchsan.report import Options
from torchsan.report.words import ranks_words


def _line(finding: Finding) -> str:
    at = finding.primary
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    where = ranks_words(finding)
    return f"{at.path}:{at.line}:{at.column}: {finding.level}[{finding.code}] {finding.message}{times}{where}"


def render(report: Report, options: Options) -> str:
    return "".join(_line(finding) + "\n" for finding in report.visible(possible=options.possible))
