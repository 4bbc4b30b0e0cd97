"""Programs that train right, however bold: no error and no warning."""

from __future__ import annotations

import textwrap

import pytest
from right_programs import RIGHT, SETUP


@pytest.mark.parametrize("program", RIGHT.values(), ids=RIGHT.keys())
@pytest.mark.filterwarnings("ignore")
def test_no_alarm(program, watch_program):
    watched = watch_program(SETUP + textwrap.dedent(program))
    assert watched.error is None
    assert watched.alarms == []
    assert watched.report.notes == []
