"""Whole programs, each with one wrong write: the line that wrote is told, and no other."""

from __future__ import annotations

import pytest
from loud_programs import PROGRAMS as LOUD
from odd_programs import PROGRAMS as ODD


@pytest.mark.parametrize("story", [*LOUD, *ODD])
@pytest.mark.filterwarnings("ignore")
def test_the_writing_line_is_told(story, sensor, watch_program):
    source = {**LOUD, **ODD}[story].replace('__name__ == "__main__"', "True")
    watched = watch_program(source)
    assert watched.report.notes == []
    assert watched.alarms
    told = [
        span.line
        for finding in watched.alarms
        for span in finding.spans
        if span.role == "mutated" and span.path.endswith("program.py")
    ]
    assert told[0] in watched.marked("written")
