"""The page in a real browser: opened from disk, clicked, typed into, looked at in light and dark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, find_browser
from report_samples import overwritten, sample
from timeline_samples import large, small

from torchsan.model import Report, Span
from torchsan.model.memory import Growth, KeptRow, Memory, StepMemory
from torchsan.processes.merging import merge
from torchsan.processes.reading import Record
from torchsan.report import render

EXECUTABLE = find_browser()
ROOT = Path(__file__).parents[2]
SRC, GALLERY = ROOT / "src", ROOT / "docs" / "gallery"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(EXECUTABLE is None, reason="no Chromium here: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(str(EXECUTABLE), tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """The shared browser; a test fails after which it complains, or that used the network."""
    chromium.complaints.clear()
    chromium.requests.clear()
    chromium.prefer("light")
    yield chromium
    assert chromium.complaints == []
    assert all(url.startswith("file:") for url in chromium.requests)


def _open(browser: Browser, report: Report, folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(render(report, "html"), encoding="utf-8")
    browser.open(path)
    browser.settle()
    return path


def _timed(folder: Path) -> Report:
    report = sample(folder)
    report.timeline = small(str(folder / "train.py"))
    report.captures = []
    return report


def test_a_finding_shows_its_places_and_its_fix(browser: Browser, tmp_path: Path) -> None:
    _open(browser, _timed(tmp_path), tmp_path)
    assert browser.count(".finding") == 2
    detail = browser.text("#detail")
    for words in (
        "overwritten here (version 0 → 1)",
        "needed here",
        "why: d exp(x)/dx",
        "verified",
        "+4.0 MB",
        "help: write to new memory",
    ):
        assert words in detail
    marks = browser.evaluate(
        "[...document.querySelectorAll('#detail .row')].map(r => "
        "[...r.querySelectorAll('mark')].map(m => m.textContent).join('')).filter(Boolean)"
    )
    assert marks == ["torch.exp(x)", "h += 1", "h.sum().backward()"]
    assert browser.text(".diff .plus") == "+h = h + 1"


def test_clicks_keys_search_and_filters_choose_findings(browser: Browser, tmp_path: Path) -> None:
    _open(browser, _timed(tmp_path), tmp_path)
    browser.click(".finding:nth-child(2)")
    assert "TS204" in browser.text("#detail h2")
    browser.key("k")
    assert "TS101" in browser.text("#detail h2")
    browser.key("j")
    assert "TS204" in browser.text("#detail h2")
    browser.click("#codes button:nth-child(1)")
    assert browser.text("#findings .code") == "TS101"
    assert browser.count(".finding") == 1
    browser.click("#codes button:nth-child(1)")
    browser.key("/")
    browser.type("callers input")
    assert browser.count(".finding") == 1
    browser.type(" nonsense")
    assert browser.text("#findings") == "No finding matches."


def test_the_timeline_answers_to_keys_and_clicks(browser: Browser, tmp_path: Path) -> None:
    _open(browser, _timed(tmp_path), tmp_path)
    browser.key("l")
    browser.key("ArrowRight")
    assert browser.text("#moment").startswith("x: made, version 0")
    browser.key("ArrowDown")
    browser.key("ArrowRight")
    browser.key("ArrowRight")
    assert "h (float32 [3], 12 B): written, version 1" in browser.text("#moment")
    assert "TS101" in browser.text("#moment")
    browser.key("ArrowLeft")
    browser.key("ArrowLeft")
    browser.key("Enter")
    assert "exp makes it" in browser.text("#detail h2")
    box = browser.evaluate(
        "(() => { const b = document.getElementById('canvas').getBoundingClientRect();return [b.x, b.y, b.width]; })()"
    )
    # The needed moment lies at 6 of a view from about 0.4 to 7.6, in the second row.
    shown = browser.evaluate("document.getElementById('canvas').width")
    assert shown > 800
    browser.key("0")
    browser.click_at(box[0] + 230 + (box[2] - 230) * (6 - 0.38) / (7.62 - 0.38), box[1] + 20 + 22 + 11)
    assert "needed, version 0" in browser.text("#moment")


def test_each_rank_has_its_lanes_and_findings_say_where_they_happened(browser: Browser, tmp_path: Path) -> None:
    one = _timed(tmp_path)
    assert one.timeline is not None
    ranks = [
        Record("", pid=100 + rank, rank=rank, world=2, watched=True, timeline=one.timeline.as_json()) for rank in (0, 1)
    ]
    ranks[0].outcome = "ended"
    ranks[1].findings = one.findings
    report = merge(ranks)
    assert report.timeline is not None
    assert [lane.module for lane in report.timeline.lanes] == ["rank 0", "rank 0", "rank 1", "rank 1"]
    _open(browser, report, tmp_path)
    assert browser.text(".finding .ranks") == browser.text("#detail h2 .ranks") == "rank 1"
    assert browser.text("#summary").startswith("1 error · 1 warning · rank 1 died without a word · ")
    assert "rank 0" not in browser.text("#summary")
    browser.key("l")
    for _ in range(4):
        browser.key("ArrowDown")
    browser.key("ArrowRight")
    # The last lane is that of rank 1, where it happened; the same lane of rank 0 has no finding.
    assert browser.text("#moment").startswith("h (float32 [3], 12 B)")
    assert "TS101" in browser.text("#moment")
    assert all(moment.finding is None for lane in report.timeline.lanes[:2] for moment in lane.moments)


def test_light_and_dark_differ_and_the_button_switches(browser: Browser, tmp_path: Path) -> None:
    _open(browser, _timed(tmp_path), tmp_path)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = browser.evaluate(paper)
    first = browser.screenshot(tmp_path / "light.png")
    browser.prefer("dark")
    dark = browser.evaluate(paper)
    second = browser.screenshot(tmp_path / "dark.png")
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(22, 24, 29)")
    assert first != second
    browser.click("#theme")
    assert browser.evaluate(paper) == light


def test_a_real_run_is_shown(browser: Browser, tmp_path: Path) -> None:
    """Also takes the pictures of the README and the site, when told where to put them."""
    shutil.copy(GALLERY / "shortcut-relu" / "before.py", tmp_path / "train.py")
    command = [sys.executable, "-m", "torchsan", "run", "--html", "report.html", "train.py"]
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True)
    browser.open(tmp_path / "report.html")
    browser.settle()
    assert "TS101" in browser.text("#detail h2")
    assert browser.text("#detail h3") == "train.py:13"
    assert "self.branch(x)" in browser.text("#detail .source")
    if pictures := os.environ.get("TORCHSAN_SCREENSHOTS"):
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            browser.screenshot(Path(pictures) / f"report-{scheme}.png")


OVERWRITTEN = """\
import torch

w = torch.ones(3, requires_grad=True)
h = torch.exp(w)
h += 1
h.sum().backward()
"""
FROZEN = """\
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x - 1


def make():
    return Net(), (torch.ones(2, 3),)
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["check", "train.py"], "TS101"),
        (["fix", "train.py"], "TS101"),
        (["verify", "--method", "jit.trace", "frozen.py:make"], "TS301"),
    ],
    ids=["check", "fix", "verify"],
)
def test_every_verb_makes_a_page(browser: Browser, tmp_path: Path, words: list[str], code: str) -> None:
    (tmp_path / "train.py").write_text(OVERWRITTEN)
    (tmp_path / "frozen.py").write_text(FROZEN)
    command = [sys.executable, "-m", "torchsan", words[0], "--html", "report.html", *words[1:]]
    environment = {**os.environ, "PYTHONPATH": str(SRC), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 1
    browser.open(tmp_path / "report.html")
    browser.settle()
    assert code in browser.text("#detail h2")
    if words[0] == "verify":
        assert "unfaithful" in browser.text("#captures-panel table")
        assert "parts from eager here at frozen.py:6" in browser.text(".tree .differs")
    else:
        assert browser.text(".diff .plus") == "+h = h + 1"


def test_captures_are_a_table_of_methods_and_variants(browser: Browser, tmp_path: Path) -> None:
    report = sample(tmp_path)
    report.extra["modules"] = [
        {"path": "", "type": "Net", "verdict": "differs", "detail": ""},
        {"path": "head", "type": "Linear", "verdict": "differs", "detail": "parts here"},
        {"path": "body.0", "type": "ReLU", "verdict": "same", "detail": ""},
    ]
    _open(browser, report, tmp_path)
    table = browser.text("#captures-panel table")
    for words in (
        "torch.jit.trace",
        "unfaithful (12 variants)",
        "x = ones(1, 3)",
        "model.pt2",
        "onnx is not",
    ):
        assert words in table
    assert browser.text("#captures-panel td.good").startswith("faithful")
    assert "head: Linear" in browser.text(".tree .differs:nth-child(2) span")
    browser.click("#captures-panel td button")
    assert "TS101" in browser.text("#detail h2")


WIDTHS = (
    "Object.fromEntries([...document.querySelectorAll('.cell')].map(cell => "
    "[cell.textContent.split('  ')[0], Math.round(100 * cell.offsetWidth / cell.parentElement.offsetWidth)]))"
)


def test_what_is_kept_is_an_icicle_of_modules_and_lines(browser: Browser, tmp_path: Path) -> None:
    report = sample(tmp_path)
    report.captures = []
    kept = [
        KeptRow("train.py", 7, "Net.body.0", "relu: its result", 6000, 3),
        KeptRow("train.py", 8, "Net.body.1", "exp: its result", 2000),
        KeptRow("train.py", 9, "", "pow: its input", 2000),
    ]
    steps = [StepMemory(number, 5000 * number, 9) for number in (1, 2)]
    report.memory = Memory(kept, steps, [Growth("train.py", 12, "losses", 3, 80)], passes=4)
    _open(browser, report, tmp_path)
    panel = browser.text("#memory-panel")
    for words in ("10.0 kB kept for backward 2 of 4", "losses (train.py:12) grows by 3 nodes and 80 B a step"):
        assert words in panel
    # Each cell is as wide as its share of what is shown.
    whole = {"all": 100, "Net": 80, "(outside of modules)": 20, "body": 80, "0": 60, "1": 20}
    lines = {"relu: its result": 60, "exp: its result": 20, "pow: its input": 20}
    assert browser.evaluate(WIDTHS) == whole | lines
    browser.click(".cell:nth-child(2)")
    assert browser.evaluate(WIDTHS) == {"Net": 100, "body": 100, "0": 75, "1": 25} | {
        "relu: its result": 75,
        "exp: its result": 25,
    }
    browser.click(".cell")
    assert browser.evaluate(WIDTHS) == whole | lines
    assert browser.evaluate("document.querySelector('.cell.leaf').title").startswith(
        "relu: its result  train.py:7\n6.0 kB"
    )
    bars = "[...document.querySelectorAll('.steps i')].map(bar => [bar.className, bar.style.height])"
    assert browser.evaluate(bars) == [["", "50%"], ["peak", "100%"]]


def test_a_hundred_thousand_events_fold_search_and_zoom(browser: Browser, tmp_path: Path) -> None:
    source = tmp_path / "model.py"
    source.write_text("\n".join(f"    h{n} = torch.relu(self.linear(h{n}) + {n})" for n in range(1000)))
    report = _timed(tmp_path)
    report.timeline = large(str(source), 100_000)
    _open(browser, report, tmp_path)
    rows = "document.getElementById('rows').offsetHeight"
    folded = browser.evaluate(rows)
    browser.click("#unfold")
    assert browser.evaluate(rows) > 1000 * 22 > folded
    browser.click("#fold")
    assert browser.evaluate(rows) < 1000
    browser.key("/")
    browser.type("blocks.17 value")
    browser.key("Escape")
    browser.key("l")
    browser.key("ArrowRight")
    assert browser.text("#moment").startswith("self.blocks.17.value (float32")
    for key in "++++-0":
        browser.key(key)
    browser.click("#only-finding")
    assert browser.evaluate(rows) == 0


def test_strange_text_stays_text(browser: Browser, tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=\"document.title='owned'\"><b>𝒉 \u2028</b>"
    path = tmp_path / "evil.py"
    path.write_text(f"𝒉 = '{evil[:-9]}'\n", encoding="utf-8")
    span = Span(str(path), 1, 1, 1, 2, "mutated", evil, primary=True)
    _open(browser, Report(findings=[overwritten("", message=evil, spans=(span,), fixes=())]), tmp_path)
    assert browser.evaluate("document.title") == "torchsan report"
    assert browser.count("#detail img") == 0
    assert browser.text("#detail mark") == "𝒉"


def test_a_clean_report_says_so(browser: Browser, tmp_path: Path) -> None:
    _open(browser, Report(command=["torchsan", "run", "x.py"]), tmp_path)
    assert "nothing found" in browser.text("#summary")
    assert browser.evaluate("document.getElementById('below').offsetHeight") == 0
    assert browser.evaluate("document.documentElement.scrollHeight <= innerHeight") is True


def test_it_prints_every_finding(browser: Browser, tmp_path: Path) -> None:
    _open(browser, _timed(tmp_path), tmp_path)
    assert browser.printed().startswith(b"%PDF")
    assert browser.count("#print article") == 2
