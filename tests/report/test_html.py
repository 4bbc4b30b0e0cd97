"""The HTML report is one whole file, safe whatever the report says, and small for long runs."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
from report_samples import overwritten, sample
from timeline_samples import large, small

from torchsan.model import Report, Span, Timeline
from torchsan.report import Options, render

WEB = Path(__file__).parents[2] / "web"


def _data(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found
    data: dict[str, object] = json.loads(found[1])
    return data


def test_the_bundle_is_made_from_its_sources() -> None:
    spec = importlib.util.spec_from_file_location("build", WEB / "build.py")
    assert spec
    assert spec.loader
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    assert build.TARGET.read_text(encoding="utf-8") == build.bundle(), "run: make page"


def test_the_page_needs_no_network(tmp_path: Path) -> None:
    page = render(sample(tmp_path), "html")
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)


def test_text_of_the_user_cannot_end_the_script() -> None:
    evil = "</script><script>document.title = 'owned'</script><!--torchsan:data-->"
    span = Span("<cell>", 1, 1, 1, 2, "mutated", evil, primary=True)
    page = render(Report(findings=[overwritten("", message=evil, spans=(span,))]), "html")
    clean = render(Report(), "html")
    assert page.count("</script>") == clean.count("</script>")
    finding = _data(page)["findings"][0]  # type: ignore[index]
    assert finding["message"] == evil


def test_sources_are_the_lines_around_the_places(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("".join(f"line {number}\n" for number in range(1, 101)))
    spans = tuple(Span(str(path), n, 1, n, 5, "mutated", "", primary=n == 3) for n in (3, 60))
    data = _data(render(Report(findings=[overwritten("", spans=spans)]), "html"))
    first, second = data["sources"][str(path)]  # type: ignore[index]
    assert (first[0], first[1][-1]) == (1, "line 15")
    assert (second[0], second[1][-1]) == (48, "line 72")


def test_hidden_findings_leave_the_others_in_their_place(tmp_path: Path) -> None:
    report = sample(tmp_path)
    report.findings.insert(0, report.findings.pop(2))
    report.captures = report.captures[:0]
    report.timeline = small("x.py")
    moments = report.timeline.lanes[1].moments
    report.timeline.lanes[1].moments = [m if m.finding is None else type(m)(m.at, m.kind, finding=1) for m in moments]
    shown = _data(render(report, "html"))
    assert [f["code"] for f in shown["findings"]] == ["TS101", "TS204"]  # type: ignore[attr-defined]
    timeline = Timeline.from_json(shown["timeline"])  # type: ignore[arg-type]
    assert {moment.finding for moment in timeline.moments()} == {None, 0}
    everything = _data(render(report, "html", Options(possible=True)))
    assert len(everything["findings"]) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("events", [100_000])
def test_a_long_run_stays_below_five_megabytes(tmp_path: Path, events: int) -> None:
    source = tmp_path / "model.py"
    source.write_text("\n".join(f"    h{n} = torch.relu(self.linear(h{n}) + {n})" for n in range(1000)))
    report = sample(tmp_path)
    report.timeline = large(str(source), events)
    page = render(report, "html")
    assert sum(1 for _ in report.timeline.moments()) == events
    assert len(page.encode()) < 5_000_000
