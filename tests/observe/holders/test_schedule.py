"""Looking has a share of the process's time, new lines come first, and the report says when it is used up."""

from __future__ import annotations

import time

import pytest

from torchsan.observe.holders import schedule
from torchsan.observe.timing import Share


@pytest.fixture
def process(monkeypatch) -> Share:
    """A process that has just begun, with no time to give but what a new line earns."""
    monkeypatch.undo()  # here shares are what they are
    fresh = Share(0.0, 0.0)
    monkeypatch.setattr(schedule, "_first_looks", fresh)
    monkeypatch.setattr(schedule, "_share", Share(-1.0, 0.0))
    monkeypatch.setattr(schedule, "_known", set())
    return fresh


def test_a_share_grows_with_the_run(monkeypatch):
    monkeypatch.undo()
    share = Share(allowance=0.5, share=0.1, started=time.process_time() - 10.0)
    share.spent = 1.4
    assert share.allows()
    assert not share.spare()
    share.spent = 1.7
    assert not share.allows()


def test_time_is_not_saved_up(monkeypatch):
    monkeypatch.undo()
    share = Share(allowance=0.0, share=0.1, started=time.process_time() - 100.0, hoard=0.5)
    assert share.spare()
    share.spent += 0.4
    assert share.allows()
    assert not share.spare()
    share.spent += 0.4
    assert not share.allows()


def test_what_is_spent_is_charged_once(process):
    with process.spending(), process.spending():
        sum(range(100_000))
    whole = process.spent
    assert whole > 0
    with process.spending():
        pass
    assert process.spent < 2 * whole


def test_a_new_line_has_time_of_its_own(process):
    block = schedule.Schedule()
    assert block.allows("first")
    process.spent = 1.5 * schedule.FOR_A_LINE
    assert not block.allows("first")
    assert block.allows("second")


def test_a_line_is_new_but_once_in_a_process(process, monkeypatch):
    assert schedule.Schedule().allows("line")
    earned = process.allowance
    later = schedule.Schedule()
    assert not later.allows("line")
    assert process.allowance == earned
    assert later.remark == ""  # it was looked at before: nothing was left out
    monkeypatch.setattr(schedule, "_share", Share(1.0, 0.0))
    assert later.allows("line")


def test_a_block_tells_what_it_left_out(process):
    block = schedule.Schedule()
    assert block.allows("line")
    assert block.remark == ""
    process.spent = 1.0
    assert not block.allows("line")
    assert not block.due("line")
    assert "left out 2 times" in block.remark
    assert schedule.Schedule().remark == ""


MANY_WRITES = """
import torch

kept = [torch.zeros(3) for _ in range(2000)]
for turn in range(1500):
    kept[turn % 7].add_(1.0)
    kept[turn % 5].mul_(0.5)
"""


def test_the_report_says_that_the_share_is_used_up(process, monkeypatch, watch_program):
    monkeypatch.setattr(schedule, "FOR_A_LINE", 0.0)
    notes = watch_program(MANY_WRITES).report.notes
    assert ["used up its share of the time" in note for note in notes] == [True]


def test_looks_of_a_run_keep_to_their_time(process, monkeypatch, watch_program):
    monkeypatch.setattr(schedule, "FOR_A_LINE", 0.005)
    began = time.process_time()
    share = Share(0.0, 0.01, started=began)
    monkeypatch.setattr(schedule, "_share", share)
    watch_program(MANY_WRITES)
    longest = 0.1  # a look that is begun is ended
    assert 0 < share.spent + process.spent <= process.allowance + share.share * (time.process_time() - began) + longest


def test_nothing_is_earned_outside_of_a_block(monkeypatch):
    monkeypatch.undo()
    share = Share(allowance=0.0, share=0.1, started=0.0)
    now = [10.0]
    monkeypatch.setattr("torchsan.observe.timing.processor_time", lambda: now[0])
    assert share.granted() == pytest.approx(1.0)
    share.rest()
    now[0] = 50.0
    share.resume()
    assert share.granted() == pytest.approx(1.0)
    now[0] = 60.0
    assert share.granted() == pytest.approx(2.0)


def test_a_long_run_has_a_smaller_share(monkeypatch):
    monkeypatch.undo()
    share = Share(allowance=0.0, share=0.1, started=0.0, early=10.0, later=0.01)
    now = [10.0]
    monkeypatch.setattr("torchsan.observe.timing.processor_time", lambda: now[0])
    assert share.granted() == pytest.approx(1.0)
    now[0] = 110.0
    assert share.granted() == pytest.approx(2.0)


def test_the_processors_time_is_not_asked_for_before_there_can_be_any(monkeypatch):
    monkeypatch.undo()
    wall, asked = [0.0], []
    monkeypatch.setattr("torchsan.observe.timing.perf_counter", lambda: wall[0])
    monkeypatch.setattr("torchsan.observe.timing.processor_time", lambda: asked.append(None) or wall[0])
    share = Share(allowance=0.0, share=0.1, started=0.0, hoard=1.0)
    share.spent = 0.2
    for tenth in range(30):  # what is spent is earned again after two seconds, and half a hoard after seven
        wall[0] = tenth / 10
        assert share.allows() is (tenth >= 20)
    assert len(asked) < 15
    asked.clear()
    wall[0] = 3.0
    assert not share.spare()
    assert not share.spare()
    assert len(asked) == 1
    wall[0] = 8.0
    assert share.spare()


def test_what_is_earned_can_be_spent_at_once(monkeypatch):
    monkeypatch.undo()
    share = Share(allowance=0.0, share=0.0001, started=time.process_time())
    share.spent = 1.0
    assert not share.allows()
    share.earn(2.0)
    assert share.allows()
