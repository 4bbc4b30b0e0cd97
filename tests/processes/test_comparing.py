"""What is read off the records of several ranks laid side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchsan.processes.compare import _uneven_loop
from torchsan.processes.ring import Call

SOURCE = """
def average(parameters):
    for p in parameters:
        dist.all_reduce(p.grad)


def train():
    for batch in loader:
        average(net.parameters())
    dist.all_reduce(total)
"""


def call(path: Path, number: int, line: int, size: int) -> Call:
    function = "average" if line == 4 else "train"
    where = [str(path), line, 9 if line == 4 else 5, line, 32 if line == 4 else 27, function]
    return Call(number, ["all_reduce", "SUM", -1, size, "float32", f"[({size},)]", ""], where, (), True)


@pytest.mark.parametrize(
    ("sizes", "loop"),
    [([5, 1, 5, 1, 5], None), ([5, 1, 5, 1], 3), ([5, 5, 5], 3)],
    ids=["between two rounds", "in the middle of one", "all of one size"],
)
def test_the_loop_that_a_rank_has_left(tmp_path: Path, sizes: list[int], loop: int | None) -> None:
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    last = len(sizes)
    goes_on = {number: call(path, number, 4, size) for number, size in enumerate(sizes, 1)}
    has_left = {number: entry for number, entry in goes_on.items() if number < last}
    has_left[last] = call(path, last, 10, 1)
    found = _uneven_loop({0: goes_on[last], 1: has_left[last]}, last, {0: goes_on, 1: has_left})
    assert (found.place.line if found is not None else None) == loop
