"""Graphs that pile up are found with their holder; graphs that are kept on purpose are not spoken of."""

from __future__ import annotations

import gc

import pytest
from observe_kept_programs import LEAKS, ON_PURPOSE, SETUP


@pytest.fixture(autouse=True)
def only_the_program():
    """What the libraries have made is of no interest here, and takes most of the time of a look."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("name", LEAKS)
def test_a_graph_that_piles_up_is_found(watch_program, name):
    watched = watch_program(SETUP + LEAKS[name])
    assert watched.error is None
    assert [f.code for f in watched.alarms] == ["TS501"]
    assert watched.lines("aliased") == watched.marked("holds")


@pytest.mark.parametrize("name", ON_PURPOSE)
def test_a_graph_that_is_kept_on_purpose_is_not_spoken_of(watch_program, name):
    watched = watch_program(SETUP + ON_PURPOSE[name])
    assert watched.error is None
    assert watched.alarms == []
    assert watched.report.notes == []
