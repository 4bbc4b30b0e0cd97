"""Graphs that pile up are found with their holder; graphs that are kept on purpose are not spoken of."""

from __future__ import annotations

import gc

import pytest
from kept_in_projects import LEAKS_IN_PROJECTS, ON_PURPOSE_IN_PROJECTS, PROJECT
from kept_in_the_library import LEAKS_IN_THE_LIBRARY, LET_GO_IN_THE_LIBRARY
from kept_without_names import FULL_SOME_DAY, LEAKS_WITHOUT_NAMES
from observe_kept_programs import LEAKS, ON_PURPOSE, SETUP

PILING_UP = {name: SETUP + text for name, text in LEAKS.items()} | {
    name: PROJECT + text for name, text in (LEAKS_IN_PROJECTS | LEAKS_WITHOUT_NAMES | LEAKS_IN_THE_LIBRARY).items()
}
MEANT = {name: SETUP + text for name, text in ON_PURPOSE.items()} | {
    name: PROJECT + text for name, text in (ON_PURPOSE_IN_PROJECTS | FULL_SOME_DAY | LET_GO_IN_THE_LIBRARY).items()
}


@pytest.fixture(autouse=True)
def only_the_program():
    """What the libraries have made is of no interest here, and takes most of the time of a look."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("name", PILING_UP)
def test_a_graph_that_piles_up_is_found(watch_program, name):
    watched = watch_program(PILING_UP[name])
    assert watched.error is None
    assert [f.code for f in watched.alarms] == ["TS501"]
    assert watched.lines("aliased") == watched.marked("holds")


@pytest.mark.parametrize("name", MEANT)
def test_a_graph_that_is_kept_on_purpose_is_not_spoken_of(watch_program, name):
    watched = watch_program(MEANT[name])
    assert watched.error is None
    assert watched.alarms == []
    assert watched.report.notes == []
