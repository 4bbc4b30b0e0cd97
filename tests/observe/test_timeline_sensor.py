"""The timeline of a run tells what happened to each memory, in order, and which moments a finding is about."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from torchsan.model import Lane, Report, Timeline
from torchsan.observe.recorder import Recorder
from torchsan.observe.sensors import timeline as sensor

Told = Callable[[str], tuple[Timeline, Report]]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """The timeline and the report of a program."""

    def run(source: str) -> tuple[Timeline, Report]:
        path = tmp_path / "program.py"
        path.write_text("import torch\n" + textwrap.dedent(source))
        recorder = Recorder(timeline=True)
        recorder.start()
        try:
            exec(compile(path.read_text(), str(path), "exec"), {"__name__": "program"})
        except RuntimeError as error:
            recorder.explain(error)
        finally:
            recorder.stop()
        assert recorder.report.notes == []
        assert recorder.report.timeline is not None
        return recorder.report.timeline, recorder.report

    return run


def _lane(timeline: Timeline, name: str) -> Lane:
    [lane] = [lane for lane in timeline.lanes if lane.name == name]
    return lane


def _story(lane: Lane) -> list[tuple[str, int, int | None]]:
    """Kind, line and finding of each moment."""
    return [(m.kind, m.place.line if m.place else 0, m.finding) for m in lane.moments]


def test_a_healthy_value_is_made_saved_and_needed(told: Told) -> None:
    timeline, report = told("""
        x = torch.ones(3, requires_grad=True)
        h = torch.exp(x)
        h.sum().backward()
    """)
    lane = _lane(timeline, "h")
    assert report.findings == []
    assert _story(lane) == [("made", 4, None), ("saved", 4, None), ("needed", 5, None)]
    assert lane.detail == "float32 [3]"
    assert lane.size_bytes == 12


def test_an_overwritten_value_shows_the_three_moments_of_its_finding(told: Told) -> None:
    timeline, report = told("""
        x = torch.ones(3, requires_grad=True)
        h = torch.exp(x)
        h += 1
        h.sum().backward()
    """)
    assert [finding.code for finding in report.findings] == ["TS101"]
    moments = _lane(timeline, "h").moments
    blamed = [(m.kind, m.version) for m in moments if m.finding == 0]
    assert blamed == [("saved", 0), ("written", 1), ("needed", 0)]


def test_saves_writes_and_steps_stand_in_the_order_of_the_run(told: Told) -> None:
    timeline, report = told("""
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
        optim = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            loss = model(torch.ones(4, 2)).sum()
            optim.zero_grad()
            loss.backward()
            optim.step()
    """)
    assert report.findings == []
    lane = _lane(timeline, "model.2.weight")
    assert lane.module == "model.2"
    assert _story(lane)[1:] == [("saved", 6, None), ("needed", 8, None), ("written", 9, None)] * 2
    numbers = [moment.at for moment in lane.moments]
    assert numbers == sorted(set(numbers))


def test_a_step_between_forward_and_backward_is_seen_where_it_was(told: Told) -> None:
    timeline, report = told("""
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
        optim = torch.optim.SGD(model.parameters(), lr=0.1)
        first = model(torch.ones(4, 2)).sum()
        second = model(torch.zeros(4, 2)).sum()
        second.backward()
        optim.step()
        first.backward()
    """)
    assert [finding.code for finding in report.findings] == ["TS105"]
    story = _story(_lane(timeline, "model.2.weight"))[1:]
    assert story == [
        ("saved", 5, 0),
        ("saved", 6, None),
        ("needed", 7, None),
        ("written", 8, 0),
        ("needed", 9, 0),
    ]


def test_the_page_has_a_bound_and_tells_it(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensor, "MAX_MOMENTS", 10)
    timeline, _ = told("""
        x = torch.ones(3, requires_grad=True)
        for _ in range(20):
            torch.exp(x).sum().backward()
    """)
    assert sum(1 for _ in timeline.moments()) == 10
    assert timeline.dropped > 0


def test_recording_changes_no_gradient() -> None:
    def gradient() -> torch.Tensor:
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 3)
        torch.sigmoid(layer(torch.ones(2, 3))).prod().backward()
        assert layer.weight.grad is not None
        return layer.weight.grad

    plain = gradient()
    recorder = Recorder(timeline=True)
    recorder.start()
    watched = gradient()
    recorder.stop()
    assert torch.equal(plain, watched)


def test_nobody_pays_who_did_not_ask() -> None:
    recorder = Recorder()
    recorder.start()
    torch.exp(torch.ones(2, requires_grad=True)).sum().backward()
    recorder.stop()
    assert recorder.report.timeline is None
    assert not [listener for listener in recorder.before_backward if "timeline" in listener.__module__]
