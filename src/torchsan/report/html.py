"""One self-contained page to look at, search and pass on: no network, no server.

The page itself (style and script) is made from `web/` once and ships with us; here it gets its data.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files
from typing import Any

from torchsan.model import Finding, Report
from torchsan.model.source import source_lines
from torchsan.report import Options
from torchsan.report.full import render as render_full
from torchsan.report.shown import shown_part

DATA, PLAIN = "<!--torchsan:data-->", "<!--torchsan:plain-->"

# Lines of source around each place that the page can show.
AROUND = 12
# Sources are told in pieces; a page about very many places stays small by leaving out the last ones.
MOST_LINES = 20_000


def _pieces(lines: list[str], wanted: set[int]) -> list[list[Any]]:
    """The wanted lines as [first line, texts] pieces without gaps."""
    pieces: list[list[Any]] = []
    for number in sorted(number for number in wanted if 1 <= number <= len(lines)):
        text = lines[number - 1].rstrip("\r\n")
        if pieces and number == pieces[-1][0] + len(pieces[-1][1]):
            pieces[-1][1].append(text)
        else:
            pieces.append([number, [text]])
    return pieces


def _stretches(findings: Iterable[Finding], report: Report) -> Iterable[tuple[str, int, int]]:
    """Every stretch of source that the page may show, the findings' first."""
    for finding in findings:
        for span in finding.spans:
            yield span.path, span.line - AROUND, min(span.end_line, span.line + AROUND) + AROUND
    if report.timeline is not None:
        for place in dict.fromkeys(report.timeline.places()):
            yield place.path, place.line - AROUND // 2, place.line + AROUND // 2


def _sources(findings: Iterable[Finding], report: Report) -> dict[str, list[list[Any]]]:
    wanted: dict[str, set[int]] = {}
    left = MOST_LINES
    for path, start, end in _stretches(findings, report):
        known = wanted.setdefault(path, set())
        new = set(range(max(1, start), end + 1)) - known
        if len(new) <= left:
            known |= new
            left -= len(new)
    return {path: _pieces(source_lines(path), numbers) for path, numbers in wanted.items()}


def render(report: Report, options: Options) -> str:
    shown = shown_part(report, options)
    data = {**shown.as_json(), "sources": _sources(shown.findings, shown)}
    # `<` never stands in the data as such, so that no text of the user's can end the script element.
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    page = files("torchsan.report").joinpath("page.html").read_text(encoding="utf-8")
    before, _, rest = page.partition(PLAIN)
    middle, _, after = rest.partition(DATA)
    plain = html.escape(render_full(shown, replace(options, color=False, limit=200)))
    return f"{before}{plain}{middle}{text}{after}"
