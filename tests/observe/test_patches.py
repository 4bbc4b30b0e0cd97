"""Replaced attributes: what stands there while the replacements are out."""

from __future__ import annotations

import subprocess
import sys

from torchsan.observe.patches import Patches


def test_a_second_replacement_is_built_on_the_first_while_both_are_out():
    class Owner:
        name = "own"

    patches = Patches()
    assert patches.current(Owner, "name") == "own"
    patches.set(Owner, "name", "first")
    patches.remove()
    assert (Owner.name, patches.current(Owner, "name")) == ("own", "first")
    patches.set(Owner, "name", patches.current(Owner, "name") + " and second")
    patches.apply()
    assert Owner.name == "first and second"
    patches.remove()
    assert Owner.name == "own"


PROGRAM = """
import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
score = torch.compile(net, backend="aot_eager")
loss = score(torch.ones(2, 3)).mean()
for p in net.parameters():
    p.data.clamp_(-0.01, 0.01)
loss.backward()
"""


def test_data_is_seen_when_modules_were_imported_by_the_compiler(tmp_path):
    """In a process of its own: what the compiler imports is there already in this one."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "torchsan", "run", "--format", "concise", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "program.py:9:5: error[TS201]" in done.stdout + done.stderr
