"""Warnings come from the user's lines, as they do without us: filters by module and "once per line" go by them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import warnings

import numpy as np
import torch

if len(sys.argv) > 1:
    warnings.filterwarnings(sys.argv[1], category=UserWarning, module="__main__")
for _ in range(2):
    x = torch.tensor([np.zeros(2), np.ones(2)])
fixed = np.zeros(3)
fixed.flags.writeable = False
a = torch.from_numpy(fixed)
b = torch.as_tensor(fixed)
torch.tensor(torch.zeros(2))
h = torch.ones(2, requires_grad=True) * 2
h.grad
def gradient(net):
    return torch.autograd.grad(net(torch.ones(2, 5)).sum(), net.weight)
for mode in ("always", "default", "once"):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(mode)
        for _ in range(2):
            torch.tensor(torch.zeros(2))
        out = torch.empty(3)
        torch.add(torch.ones(2), 1, out=out)
    print([(str(one.message)[:30], one.filename, one.lineno) for one in caught])
    # Five calls up from the hook: one of the calls between is ours.
    net = torch.nn.Linear(5, 3)
    net.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(mode)
        for _ in range(2):
            net(torch.ones(2, 5)).sum().backward()
        gradient(net)
    print([(str(one.message)[:30], one.filename, one.lineno) for one in caught])
"""


@pytest.mark.parametrize("action", ["", "error", "ignore", "once"])
def test_as_without_us(action: str, tmp_path: Path, sensor: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    arguments = [str(path), *filter(None, [action])]
    plain = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    watched = subprocess.run(
        [sys.executable, "-m", "torchsan", "run", "--format", "json", "--output", str(tmp_path / "out"), *arguments],
        capture_output=True,
        text=True,
    )
    assert watched.returncode == plain.returncode
    assert watched.stdout == plain.stdout
    # What Python says of a warning; a traceback has our frames in it.
    said = [line for line in plain.stderr.splitlines() if "Warning: " in line]
    assert [line for line in watched.stderr.splitlines() if "Warning: " in line] == said
    assert said if action != "ignore" else not said
