"""Blocks under `checkpoint`: an input that is overwritten before the block is computed again."""

from __future__ import annotations

import pytest

SETUP = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
calls = []
block.register_forward_pre_hook(lambda *_: calls.append(1))
x = torch.randn(3, 4, requires_grad=True)
"""
WRITTEN = {
    "in place": "h.mul_(2)  # written",
    "behind autograd": "h.data.mul_(2)  # written",
    "by index": "with torch.no_grad():\n    h[0] = 0  # written",
}


@pytest.mark.parametrize("reentrant", [False, True], ids=["not reentrant", "reentrant"])
@pytest.mark.parametrize("how", WRITTEN)
def test_an_overwritten_input_is_told_with_both_lines(how, reentrant, watch_program):
    program = (
        f"{SETUP}h = x * 1\ny = checkpoint(block, h, use_reentrant={reentrant})  # saved\n{WRITTEN[how]}\n"
        "y.sum().backward()\nassert len(calls) == 2\n"
    )
    watched = watch_program(program)
    assert watched.report.notes == []
    assert [finding.level for finding in watched.alarms] == ["error"]
    assert watched.lines("mutated") == watched.marked("written")
    assert watched.lines("saved") == watched.marked("saved")
    assert (watched.error is None) == (how == "behind autograd")


def test_weights_stepped_before_the_block_is_computed_again(watch_program):
    program = (
        SETUP + "opt = torch.optim.SGD(block.parameters(), lr=0.1)\nblock(x).sum().backward()\n"
        "y = checkpoint(block, x, use_reentrant=False)  # saved\nopt.step()  # written\ny.sum().backward()\n"
    )
    watched = watch_program(program)
    assert watched.error is None
    assert watched.lines("mutated") == watched.marked("written")
    assert watched.lines("saved") == watched.marked("saved")


@pytest.mark.parametrize("reentrant", [False, True])
def test_training_with_checkpoints_is_quiet_and_runs_nothing_more(reentrant, watch_program):
    program = SETUP + (
        "opt = torch.optim.SGD(block.parameters(), lr=0.1)\n"
        "for _ in range(6):\n"
        "    opt.zero_grad()\n"
        "    h = x * 1\n"
        f"    y = checkpoint(block, h, use_reentrant={reentrant})\n"
        "    y = torch.relu_(y)\n"
        "    y.sum().backward()\n"
        "    h.data.mul_(2)\n"
        "    opt.step()\n"
        "assert len(calls) == 12, calls\n"
    )
    watched = watch_program(program)
    assert watched.error is None
    assert watched.report.findings == []
    assert watched.report.notes == []
