"""Whole compiled programs in the style of real projects: faults are told by their line, bold neighbours are not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "programs" / "compiled"
PROGRAMS = {row["file"]: row for row in json.loads((FOLDER / "truth.json").read_text())}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["program.py"])
    yield
    torch._dynamo.reset()


def run(name, watch_program):
    text = (FOLDER / name).read_text()
    return watch_program(text.replace('__name__ == "__main__"', "True"), name)


@pytest.mark.parametrize("name", [name for name, row in PROGRAMS.items() if row["hazard"]])
def test_the_fault_is_told(name, watch_program):
    watched = run(name, watch_program)
    primary = {span.line for finding in watched.alarms for span in finding.spans if span.primary}
    named = primary | watched.lines("mutated")
    assert named & set(PROGRAMS[name]["lines"])


@pytest.mark.parametrize("name", [name for name, row in PROGRAMS.items() if not row["hazard"]])
def test_its_neighbour_is_not(name, watch_program):
    assert run(name, watch_program).alarms == []
