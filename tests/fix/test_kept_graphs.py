"""Graphs that pile up are cut where the program keeps them: same numbers, and the growth is gone."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kept_in_projects import LEAKS_IN_PROJECTS, PROJECT

from torchsan.fix.compare import _same_text

CUTS = {
    "every epoch": '{"epoch": epoch, "loss": loss.detach()}',
    "gan g": "G_losses.append(errG.detach())",
    "few steps5": "total_loss += loss.detach()",
    "eval total": "self.total = (self.total + loss).detach()",
    "listcomp": "[step().detach() for _ in range(12)]",
    "tqdm like gen": "yield loss.detach()",
}


@pytest.mark.parametrize("name", CUTS)
def test_the_graph_is_cut_where_it_is_kept(mend, name):
    outcome = mend(PROJECT + LEAKS_IN_PROJECTS[name], limit=100)
    assert [one.finding.code for one in outcome.mends] == ["TS501"]
    assert outcome.clean, [one.dropped for one in outcome.mends]
    [source] = outcome.changed.values()
    assert CUTS[name] in source.text


def test_an_exception_that_is_kept_lets_go_of_its_frames(tmp_path):
    # In a process of its own: the suite's keeps exceptions of other tests, too.
    path = tmp_path / "program.py"
    path.write_text(PROJECT + LEAKS_IN_PROJECTS["traceback func"])
    command = [sys.executable, "-m", "torchsan", "fix", "--apply", "--quiet", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "failures.append(error.with_traceback(None))" in path.read_text(), done.stdout + done.stderr


def test_that_a_printed_value_has_a_graph_is_no_number():
    assert _same_text("tensor(1.5, grad_fn=<DivBackward0>)", "tensor(1.5)")
    assert _same_text("[tensor([1.], requires_grad=True), 2]", "[tensor([1.]), 2]")
    assert not _same_text("tensor(1.5, grad_fn=<DivBackward0>)", "tensor(1.6)")
    assert not _same_text("loss, grad_fn=<x> of y", "loss of y")
