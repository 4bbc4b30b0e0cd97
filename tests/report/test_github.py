"""Annotations are one line each, with everything escaped that GitHub would misread."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from report_samples import overwritten, sample

from torchsan.model import Report, Span
from torchsan.report import Options, render

COMMAND = re.compile(r"::(error|warning|notice) ((?:[a-zA-Z]+=[^,:]*,?)+)::(.*)")


def _commands(report: Report, **options: bool) -> list[tuple[str, dict[str, str], str]]:
    """What GitHub's runner reads: the command, its properties, the message."""
    read = []
    for line in render(report, "github", Options(**options)).splitlines():
        match = COMMAND.fullmatch(line)
        assert match, line
        pairs = (pair.split("=", 1) for pair in match[2].split(","))
        read.append((match[1], {key: unquote(value) for key, value in pairs}, unquote(match[3])))
    return read


def test_each_finding_is_one_command(tmp_path: Path) -> None:
    commands = _commands(sample(tmp_path), possible=True)
    assert [command for command, _, _ in commands] == ["error", "warning", "notice"]


def test_the_annotation_sits_on_the_primary_place(tmp_path: Path) -> None:
    _, where, message = _commands(sample(tmp_path))[0]
    assert where == {
        "file": str(tmp_path / "train.py"),
        "line": "5",
        "col": "1",
        "endColumn": "7",
        "title": "TS101 saved-value-overwritten",
    }
    assert message.splitlines()[0].endswith("saved it for its gradient (3 times)")
    assert "100% <of> the gradient & more" in message
    assert "fix (verified): h = h + 1\nhelp: write to new memory\n" in message


def test_a_place_of_several_lines_has_no_columns(tmp_path: Path) -> None:
    where = _commands(sample(tmp_path))[1][1]
    assert where["line"] == "5"
    assert where["endLine"] == "6"
    assert "col" not in where


def test_properties_cannot_break_out() -> None:
    path = "odd,name::error x=1::\n.py"
    span = Span(path, 1, 1, 1, 2, "mutated", "", primary=True)
    [(_, where, _)] = _commands(Report(findings=[overwritten(path, spans=(span,))]))
    assert where["file"] == path


def test_nothing_found_says_nothing() -> None:
    assert render(Report(), "github") == ""
