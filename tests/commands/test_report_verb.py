"""`torchsan report`: JSON in, any format out; bad files are one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_samples import sample

from torchsan.__main__ import main
from torchsan.report import FORMATS, render


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "findings.json"
    path.write_text(render(sample(tmp_path), "json"), encoding="utf-8")
    return path


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_rendered_as_from_memory(format: str, saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["report", str(saved), "--format", format, "--output", str(out)]) == 1
    assert "TS101" in out.read_text(encoding="utf-8")


def test_html_is_written_beside_the_text(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(saved), "--html", str(page), "--format", "concise"]) == 1
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "error[TS101]" in capsys.readouterr().out


def test_a_report_without_alarms_exits_with_zero(tmp_path: Path) -> None:
    report = sample(tmp_path)
    report.findings = []
    path = tmp_path / "clean.json"
    path.write_text(render(report, "json"))
    assert main(["report", str(path)]) == 0


def _broken(data: dict[str, object], **changes: object) -> str:
    findings = json.loads(json.dumps(data["findings"]))
    findings[0].update(changes)
    return json.dumps({**data, "findings": findings})


def test_bad_files_are_one_sentence(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = json.loads(saved.read_text())
    texts = {
        "empty": "",
        "text": "hello",
        "list": "[]",
        "other": '{"schema": "other/1"}',
        "deep": "[" * 100_000,
        "number": "9" * 10_000,
        "bare": '{"schema": "torchsan/1"}',
        "null": json.dumps({**good, "findings": None}),
        "spans": _broken(good, spans=[]),
        "level": _broken(good, level="awful"),
        "message": _broken(good, message=3),
        "count": _broken(good, count="many"),
        "path": _broken(good, spans=[{**good["findings"][0]["spans"][0], "path": "a\0b"}]),
        "timeline": json.dumps({**good, "timeline": {"lanes": [1]}}),
    }
    path = tmp_path / "bad.json"
    for name, text in texts.items():
        path.write_text(text)
        assert main(["report", str(path)]) == 2, name
        said = capsys.readouterr()
        assert said.err.count("\n") == 1, name
        assert said.out == "", name
    assert main(["report", str(tmp_path / "absent.json")]) == 2
    assert main(["report", str(tmp_path)]) == 2
    path.write_bytes(b"\xff\xfe")
    assert main(["report", str(path)]) == 2


@pytest.mark.parametrize("option", ["--html", "--output"])
def test_files_that_cannot_be_written_are_refused_first(
    option: str, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for target in (tmp_path, tmp_path / "absent" / "x"):
        assert main(["report", str(saved), option, str(target)]) == 2
        assert capsys.readouterr().err.startswith(f"torchsan: {option}: ")
