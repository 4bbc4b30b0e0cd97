"""GitHub workflow commands: each finding becomes an annotation on the line in the pull request."""

from __future__ import annotations

from torchsan.model import Finding, Report
from torchsan.report import Options
from torchsan.report.words import ranks_words, remarks

COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _body(finding: Finding) -> str:
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    said = [finding.message + times + ranks_words(finding)]
    said += [f"{span.path}:{span.line}: {span.label}" for span in finding.spans if span.label]
    return "\n".join([*said, *remarks(finding), f"more: torchsan explain {finding.code}"])


def _command(finding: Finding) -> str:
    at = finding.primary
    where = {"file": at.path, "line": str(at.line), "col": str(at.column)}
    if at.end_line > at.line:
        # GitHub ignores columns of an annotation that spans several lines.
        where = {"file": at.path, "line": str(at.line), "endLine": str(at.end_line)}
    elif at.end_column > at.column:
        where["endColumn"] = str(at.end_column)
    where["title"] = f"{finding.code} {finding.name}"
    told = ",".join(f"{key}={_property(value)}" for key, value in where.items())
    return f"::{COMMANDS[finding.level]} {told}::{_data(_body(finding))}"


def render(report: Report, options: Options) -> str:
    return "".join(_command(finding) + "\n" for finding in report.visible(possible=options.possible))
