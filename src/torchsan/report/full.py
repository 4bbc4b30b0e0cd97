"""The report for people: rustc's shape, several labelled places for one finding."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import groupby

from rich.console import Console
from rich.text import Text

from torchsan.model import Finding, Fix, Report, Span
from torchsan.model.memory import size
from torchsan.model.source import source_line
from torchsan.report import Options, captures, memory
from torchsan.report.words import ranks_words

STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
FRAME = "bold blue"
VERB = {
    "saved": "green",
    "origin": "magenta",
    "aliased": "magenta",
    "cause": "magenta",
    "needed": "cyan",
    "mutated": "red",
}


def _clip(text: str, start: int, end: int, width: int) -> tuple[str, int, int]:
    """Cut a long line so that columns start..end (from 0) stay in sight."""
    if len(text) <= width:
        return text, start, end
    left = max(0, min(start - 8, len(text) - width))
    right = left + width
    shown = text[left:right]
    if left:
        shown = "…" + shown[1:]
    if right < len(text):
        shown = shown[:-1] + "…"
    return shown, start - left, min(end - left, width)


def _underlined(span: Span, text: str) -> tuple[int, int]:
    """The columns to underline: the span, or for one of many lines, its first line."""
    start = span.column - 1
    end = span.end_column - 1 if span.end_line == span.line else len(text)
    return start, max(end, start + 1)


def _places(spans: list[Span], gutter: int, width: int) -> Iterator[Text]:
    """The lines of one file with what is said about each."""
    blank = Text(" " * gutter + " |", FRAME)
    yield blank
    for line, group in groupby(spans, key=lambda span: span.line):
        here = list(group)
        text = source_line(here[0].path, line).replace("\t", " ")
        for index, span in enumerate(here):
            shown, start, end = _clip(text, *_underlined(span, text), width - gutter - 3)
            if index == 0:
                yield Text.assemble((f"{line:>{gutter}} | ", FRAME), shown)
            style = VERB[span.role] if not span.primary else "bold red"
            mark = ("^" if span.primary else "-") * max(1, end - start)
            yield Text.assemble(blank, " " * (start + 1), (f"{mark} {span.label}", style))


def _in_files(finding: Finding) -> list[tuple[str, list[Span]]]:
    """Spans by file, the file of the primary span first, by line inside a file."""
    first = finding.primary.path
    paths = dict.fromkeys([first, *(span.path for span in finding.spans)])
    return [(p, sorted((s for s in finding.spans if s.path == p), key=lambda s: s.line)) for p in paths]


def _fix_lines(fix: Fix, gutter: int) -> Iterator[Text]:
    proof = f"{fix.applicability}: {fix.proof['summary']}" if fix.proof.get("summary") else fix.applicability
    cost = f"   +{size(fix.cost_bytes)}" if fix.cost_bytes > 0 else ""
    edge = (" " * gutter + " = ", FRAME)
    if fix.applicability == "unsafe" and not fix.diff:
        yield Text.assemble(edge, ("help: ", "bold green"), fix.title)
        return
    yield Text.assemble(edge, (f"fix ({proof}): ", "bold green"), fix.title, cost)
    for line in fix.diff.splitlines():
        if line.startswith(("---", "+++")):
            continue
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        yield Text.assemble((" " * gutter + " | ", FRAME), (line, style))


def _finding(finding: Finding, options: Options) -> Iterator[Text]:
    gutter = max(len(str(span.line)) for span in finding.spans) + 1
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    doubt = " (possible)" if finding.certainty == "possible" else ""
    head = (f"{finding.level}[{finding.code}]{doubt}", STYLES[finding.level])
    yield Text.assemble(head, (f": {finding.message}{times}{ranks_words(finding)}", "bold"))
    for index, (path, spans) in enumerate(_in_files(finding)):
        at = finding.primary if index == 0 else spans[0]
        arrow = "-->" if index == 0 else ":::"
        yield Text.assemble((" " * gutter + arrow + " ", FRAME), f"{path}:{at.line}:{at.column}")
        yield from _places(spans, gutter, options.width)
    edge = (" " * gutter + " = ", FRAME)
    if finding.why:
        yield Text.assemble(edge, ("why: ", "bold"), finding.why)
    for note in finding.notes:
        yield Text.assemble(edge, ("note: ", "bold"), note)
    for fix in finding.fixes:
        yield from _fix_lines(fix, gutter)
    yield Text.assemble(edge, ("more: ", "bold"), f"torchsan explain {finding.code}")
    yield Text("")


def summary_line(findings: list[Finding]) -> str:
    """`2 errors, 1 warning`; empty when there is nothing."""
    counts = {level: sum(f.level == level for f in findings) for level in ("error", "warning", "note")}
    return ", ".join(f"{n} {level}{'s' * (n > 1)}" for level, n in counts.items() if n)


def lines(report: Report, options: Options) -> Iterator[Text]:
    findings = report.visible(possible=options.possible)
    for finding in findings[: options.limit]:
        yield from _finding(finding, options)
    if len(findings) > options.limit:
        yield Text(f"{len(findings) - options.limit} more; --format json has all of them\n")
    yield from captures.lines(report)
    yield from memory.lines(report)
    for note in report.notes:
        yield Text(f"torchsan: {note}")
    for process in report.processes:
        if process.outcome not in ("ended", "running", "stopped"):
            who = f"rank {process.rank}" if process.rank is not None else process.role
            yield Text(f"torchsan: {who} (process {process.pid}) {process.outcome}")
    if "stepped_aside" in report.extra:
        told = summary_line(findings) or "no findings"
        yield Text(f"torchsan: {told}, but the recorder stepped aside early: not all of the run was watched", "bold")
    elif findings:
        yield Text(f"torchsan: {summary_line(findings)}", "bold")


def render(report: Report, options: Options) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        force_terminal=options.color,
        no_color=not options.color,
        width=options.width,
        highlight=False,
        soft_wrap=True,
        legacy_windows=False,
        # In a notebook rich would show the text there instead of writing it to `file`.
        force_jupyter=False,
    )
    for line in lines(report, options):
        console.print(line, soft_wrap=True, highlight=False)
    return out.getvalue()
