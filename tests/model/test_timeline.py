"""A timeline survives its JSON, and a long one stays small."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from torchsan.model import Lane, Moment, Place, Report, Timeline
from torchsan.model.timeline import KINDS
from torchsan.report import render

PLACES = st.builds(
    Place,
    st.sampled_from(["a.py", "b/c.py", "<cell>"]),
    st.integers(1, 50),
    st.integers(1, 20),
    end_line=st.integers(51, 60),
    end_column=st.integers(1, 20),
    function=st.sampled_from(["", "forward"]),
)
MOMENTS = st.builds(
    Moment,
    st.integers(0, 10**6),
    st.sampled_from(KINDS),
    st.integers(0, 9),
    st.text(max_size=4),
    st.none() | PLACES,
    st.none() | st.integers(0, 5),
)
LANES = st.builds(Lane, st.text(max_size=5), st.lists(MOMENTS, max_size=5), st.text(max_size=5))
TIMELINES = st.builds(Timeline, st.lists(LANES, max_size=4), st.integers(0, 9))


# A busy machine is no reason to fail.
@given(TIMELINES)
def test_a_timeline_survives_its_json(timeline: Timeline) -> None:
    report = Report(timeline=timeline, extra={"modules": [1]})
    again = Report.from_json(json.loads(render(report, "json")))
    assert again.timeline == timeline
    assert again.extra == report.extra


def test_a_report_without_timeline_says_nothing_of_it() -> None:
    assert "timeline" not in json.loads(render(Report(), "json"))
