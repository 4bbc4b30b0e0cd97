"""What a run came to, and what of it another turn of a loop came to again: the same on every Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torchsan.fix import coverage

PROGRAM = """
total = 0
def add(x):
    return x + 1
for step in range(2):
    total = add(total)
for step in range(1):
    total = total + 1
if total > 100:
    total = 0
"""


def _lines(tmp_path: Path) -> tuple[set[int], set[int]]:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    covered = coverage.Coverage()
    covered.start()
    try:
        exec(compile(PROGRAM, str(path), "exec"), {})
    finally:
        covered.stop()
    ran, again = ({place[0] for places in found.values() for place in places} for found in covered.found())
    return ran, again


def test_turns_of_a_loop_are_told_apart(tmp_path):
    ran, again = _lines(tmp_path)
    assert ran == {2, 3, 4, 5, 6, 7, 8, 9}
    # The head of a loop is asked once more after its last turn.
    assert again - {7} == {5, 6}


def test_of_what_runs_for_long_only_lines_are_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(coverage, "MOST_FOLLOWED", 4)
    ran, _ = _lines(tmp_path)
    assert ran >= {2, 3, 5, 6, 7, 8, 9}
    assert 10 not in ran


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there is nothing of the kind to take")
def test_what_others_listen_with_is_left_alone(tmp_path):
    ears = sys.monitoring
    taken = [number for number in range(6) if ears.get_tool(number) is None]
    for number in taken[:-1]:
        ears.use_tool_id(number, "somebody")
    try:
        _, again = _lines(tmp_path)
        assert again - {7} == {5, 6}
        assert [ears.get_tool(number) for number in taken[:-1]] == ["somebody"] * (len(taken) - 1)
    finally:
        for number in taken[:-1]:
            ears.free_tool_id(number)
