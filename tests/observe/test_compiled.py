"""Programs with torch.compile: both lines inside regions, no wrong line, no alarm where there is none."""

from __future__ import annotations

import compiled_sharing
import pytest
import torch
from compiled_programs import CLEAN, HAZARDS, SETUP

HAZARDS = {**HAZARDS, **compiled_sharing.HAZARDS}
CLEAN = {**CLEAN, **compiled_sharing.CLEAN}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fresh_compiler():
    yield
    torch._dynamo.reset()


def _check(watched) -> None:
    told = watched.lines("mutated")
    assert watched.marked("mutates") <= told
    assert told <= watched.marked("mutates")
    saved = watched.lines("saved")
    assert saved <= watched.marked("saves") or not watched.marked("saves")
    assert not watched.marked("saves") or saved
    assert watched.report.notes == []


@pytest.mark.parametrize("name", HAZARDS)
def test_hazard(name, watch_program):
    _check(watch_program(SETUP.format(backend="aot_eager") + HAZARDS[name]))


@pytest.mark.parametrize("name", CLEAN)
def test_clean(name, watch_program):
    watched = watch_program(SETUP.format(backend="aot_eager") + CLEAN[name])
    assert watched.error is None
    assert watched.alarms == []
    assert watched.report.notes == []
