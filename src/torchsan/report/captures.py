"""The section on captures: a table of methods, why some fail, what to use, how to reproduce."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from torchsan.model import Capture, Report

OUTCOMES = {"faithful": "bold green", "unfaithful": "bold red", "unfinished": "bold yellow", "failed": "bold yellow"}
CELLS = {"agrees": "green", "yes": "green", "differs": "red", "refuses": "yellow", "fails": "yellow", "not": "yellow"}


def _cell(text: str, width: int) -> tuple[str, str]:
    return text.ljust(width), CELLS.get(text.split(" ")[0], "")


def _table(captures: list[Capture]) -> Iterator[Text]:
    columns = list(dict.fromkeys(name for capture in captures for name in capture.checks))
    first = max(len(c.method) for c in captures)
    widths = {name: max(len(name), *(len(_short(c.checks.get(name, "–"))) for c in captures)) for name in columns}
    head = "  ".join(name.ljust(widths[name]) for name in columns)
    yield Text(f"{'method'.ljust(first)}  {'outcome'.ljust(10)}  {head}".rstrip(), "bold")
    for capture in captures:
        row = Text.assemble(capture.method.ljust(first), "  ", (capture.outcome.ljust(10), OUTCOMES[capture.outcome]))
        for name in columns:
            row.append("  ")
            row.append(*_cell(_short(capture.checks.get(name, "–")), widths[name]))
        row.rstrip()
        yield row


def _short(text: str) -> str:
    return text.partition(" (")[0]


def _indented(text: str) -> Iterator[Text]:
    for line in text.rstrip().splitlines():
        yield Text(f"    {line}".rstrip())


def lines(report: Report) -> Iterator[Text]:
    """Nothing when nothing was captured."""
    if not report.captures:
        return
    yield from _table(report.captures)
    yield Text("")
    for capture in report.captures:
        if capture.reason and capture.outcome != "faithful":
            yield Text.assemble((capture.method, "bold"), f": {capture.reason}")
        kept = capture.checks.get("effects", "")
        if "(" in kept:
            yield Text.assemble((capture.method, "bold"), ": ", kept.partition(" (")[2].rstrip(")"))
    best = report.extra.get("best")
    if best:
        how = "faithful on everything tried" if report.extra.get("best_is_faithful") else "the least bad; see above"
        yield Text("")
        yield Text.assemble(("best: ", "bold"), f"{best} ({how})")
        yield from _indented(str(report.extra.get("code", "")))
    shown = next((c for c in report.captures if c.counterexample), None)
    if shown is not None and shown.counterexample:
        yield Text("")
        yield Text.assemble(
            ("reproduce: ", "bold"),
            f"{shown.method} departs from eager; --format json has one for each method",
        )
        yield from _indented(shown.counterexample)
    yield Text("")
