"""The report for people, character by character."""

from __future__ import annotations

import pytest

from torchsan.model import Finding, Fix, Place, Report
from torchsan.report import Options, render

SOURCE = "import torch\nh = torch.exp(x)\nh += residual\nloss.backward()\n"


@pytest.fixture
def finding(tmp_path) -> Finding:
    path = str(tmp_path / "train.py")
    (tmp_path / "train.py").write_text(SOURCE)
    return Finding(
        code="TS101",
        name="saved-value-overwritten",
        level="error",
        certainty="proved",
        message="`h` was overwritten after `exp` saved it",
        spans=(
            Place(path, 2, 5, 2, 17).span("saved", "saved here"),
            Place(path, 3, 1, 3, 14).span("mutated", "overwritten here", primary=True),
            Place(path, 4, 1, 4, 16).span("needed", "needed here"),
        ),
        why="d exp(x)/dx = exp(x)",
        fixes=(Fix("h = h + residual", "verified", cost_bytes=4_000_000, proof={"summary": "runs"}),),
    )


def test_shape(finding):
    path = finding.primary.path
    assert render(Report(findings=[finding])) == (
        "error[TS101]: `h` was overwritten after `exp` saved it\n"
        f"  --> {path}:3:1\n"
        "   |\n"
        " 2 | h = torch.exp(x)\n"
        "   |     ------------ saved here\n"
        " 3 | h += residual\n"
        "   | ^^^^^^^^^^^^^ overwritten here\n"
        " 4 | loss.backward()\n"
        "   | --------------- needed here\n"
        "   = why: d exp(x)/dx = exp(x)\n"
        "   = fix (verified: runs): h = h + residual   +4.0 MB\n"
        "   = more: torchsan explain TS101\n"
        "\n"
        "torchsan: 1 error\n"
    )


def test_equal_findings_are_counted(finding):
    report = Report()
    for _ in range(3):
        report.add(finding)
    assert len(report.findings) == 1
    assert "(3 times)" in render(report)


def test_there_is_a_cap(finding, tmp_path):
    from dataclasses import replace

    spans = [tuple(replace(s, line=n % 4 + 1, column=n) for s in finding.spans) for n in range(1, 31)]
    report = Report(findings=[replace(finding, spans=s) for s in spans])
    text = render(report, "full", Options(limit=5))
    assert text.count("error[TS101]") == 5
    assert "25 more" in text
    assert "30 errors" in text


def test_possible_findings_are_hidden_until_asked_for(finding):
    from dataclasses import replace

    report = Report(findings=[replace(finding, certainty="possible")])
    assert render(report) == ""
    assert "(possible)" in render(report, "full", Options(possible=True))


def test_long_lines_are_cut_around_the_span(tmp_path, finding):
    from dataclasses import replace

    text = "x = " + "a + " * 100 + "target.add_(1)"
    (tmp_path / "long.py").write_text(text + "\n")
    column = text.index("target") + 1
    span = Place(str(tmp_path / "long.py"), 1, column, 1, column + 14).span("mutated", "here", primary=True)
    shown = render(Report(findings=[replace(finding, spans=(span,))]), "full", Options(width=80))
    lines = shown.splitlines()
    assert "target.add_(1)" in lines[3]
    assert lines[3].index("target") == lines[4].index("^")
    assert all(len(line) <= 80 for line in lines[3:4])


def test_colour_only_when_asked(finding):
    assert "\x1b[" not in render(Report(findings=[finding]))
    assert "\x1b[" in render(Report(findings=[finding]), "full", Options(color=True))


def test_source_that_is_gone_is_no_problem(finding, tmp_path):
    import linecache

    (tmp_path / "train.py").unlink()
    linecache.clearcache()
    assert "overwritten here" in render(Report(findings=[finding]))
