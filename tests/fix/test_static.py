"""Edits for `check`: which are safe without a run, and that the safe ones are right when they do run."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path
from types import ModuleType

import pytest
import torch
from generated_programs import program

import torchsan
from torchsan.fix.static import Mended, mend
from torchsan.model import Finding

HEAD = """\
import copy
import torch
from torch import nn
import torch.nn.functional as F

w = torch.ones(3, requires_grad=True)
"""


def is_sure(finding: Finding) -> bool:
    return finding.certainty != "possible"


def mended(body: str, *, unsafe: bool = False) -> Mended | None:
    source = HEAD + textwrap.dedent(body)
    return mend("program.py", source.encode(), unsafe=unsafe, wanted=is_sure)


SAFE = {
    "augmented": ("h = torch.exp(w)\nh += 1\nh.sum().backward()\n", "h = h + 1\n"),
    "method": ("h = w.sigmoid()\nh.mul_(2)\nh.sum().backward()\n", "h = h.mul(2)\n"),
    "functional": ("h = torch.tanh(w)\nh = F.relu(h, inplace=True)\nh.sum().backward()\n", "inplace=False"),
    "its values were taken before": (
        "h = w.exp()\nk = h * 2\nh += 1\n(h + k).sum().backward()\n",
        "h = h + 1\n",
    ),
    "another name sees the write": (
        "h = torch.exp(w)\nother = h\nh += 1\n(h + other).sum().backward()\n",
        "torch.exp(w).clone()\n",
    ),
    "a list sees the write": (
        "kept = []\nh = torch.exp(w)\nkept.append(h)\nh.mul_(2)\n(h + kept[0]).sum().backward()\n",
        "torch.exp(w).clone()\n",
    ),
    "the writing layer may be used elsewhere": (
        "act = nn.ReLU(inplace=True)\nh = torch.sigmoid(w)\nact(h).sum().backward()\n",
        "torch.sigmoid(w).clone()\n",
    ),
    "inside a Sequential": (
        "net = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.ReLU(inplace=True))\nnet(w).sum().backward()\n",
        "nn.ReLU(inplace=False)",
    ),
    "snapshot": (
        """
        net = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        best = net.state_dict()
        net(w).sum().backward()
        optimizer.step()
        net.load_state_dict(best)
        """,
        "best = copy.deepcopy(net.state_dict())",
    ),
}


@pytest.mark.parametrize("name", SAFE)
def test_safe_edits_are_written(name: str) -> None:
    body, expected = SAFE[name]
    done = mended(body)
    assert done is not None
    assert expected in done.after.text
    assert {fix.applicability for finding in done.findings for fix in finding.fixes} == {"safe"}


UNSAFE = {
    "what a layer returned may be held by it, too": """
        act = nn.ReLU(inplace=True)
        h = nn.Sigmoid()(w)
        act(h).sum().backward()
        """,
    "the first layer of a Sequential works on what it was given": """
        net = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 1))
        h = nn.Sigmoid()(w)
        net(h).sum().backward()
        """,
}


@pytest.mark.parametrize("name", UNSAFE)
def test_other_edits_are_not_called_safe(name: str) -> None:
    assert mended(UNSAFE[name]) is None
    done = mended(UNSAFE[name], unsafe=True)
    assert done is not None
    assert {fix.applicability for finding in done.findings for fix in finding.fixes} == {"unsafe"}


def test_nothing_is_done_to_a_right_program() -> None:
    assert mended("h = torch.exp(w)\nh = h + 1\nh.sum().backward()\n", unsafe=True) is None


def test_mending_twice_changes_nothing() -> None:
    done = mended(SAFE["augmented"][0])
    assert done is not None
    assert mend("program.py", done.after.raw, unsafe=True, wanted=is_sure) is None


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_safe_edits_compute_what_the_healed_program_computes(tmp_path: Path) -> None:
    """Programs may have faults that `check` cannot see, so both sides run healed."""
    count = 0
    for number in range(40):
        before = tmp_path / f"before_{number}.py"
        before.write_text(program(number))
        done = mend(str(before), before.read_bytes(), unsafe=False, wanted=is_sure)
        if done is None:
            continue
        count += 1
        after = tmp_path / f"after_{number}.py"
        after.write_bytes(done.after.raw)
        with torchsan.heal():
            want, got = _load(before).train(5), _load(after).train(5)
        for left, right in zip(want, got, strict=True):
            for one, other in zip(left, right, strict=True):
                assert (one is None and other is None) or torch.allclose(one, other, rtol=1e-4), after.read_text()
    assert count > 15
