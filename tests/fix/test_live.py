"""`torchsan.fix(function, *args)` in the caller's process."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchsan
from torchsan.errors import UsageError

SOURCE = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x):
        h = torch.sigmoid(self.layer(x))
        h += 1
        return h


def loss(net, x):
    return net(x).pow(2).mean()
"""


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("model", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_a_live_model_is_mended_without_touching_it(module):
    net, x = module.Net(), torch.ones(2, 3)
    before, draws = net.layer.weight.clone(), torch.get_rng_state()
    code = module.Net.forward.__code__
    mended = torchsan.fix(module.loss, net, x)
    assert mended.verified
    assert "+        h = h + 1" in mended.diff
    assert mended.proof[0]["equals_reference"]
    assert "h = h + 1" in str(mended)
    assert net.layer.weight.equal(before)
    assert net.layer.weight.grad is None
    assert torch.get_rng_state().equal(draws)
    assert module.Net.forward.__code__ is code
    assert "h += 1" in Path(module.__file__).read_text()
    mended.apply()
    assert "h = h + 1" in Path(module.__file__).read_text()


def test_a_module_can_be_given_itself(module):
    assert torchsan.fix(module.Net(), torch.ones(2, 3)).verified


def test_nothing_to_mend(module):
    mended = torchsan.fix(module.Net().layer, torch.ones(2, 3))
    assert not mended.verified
    assert mended.diff == ""


def test_arguments_that_cannot_be_copied(module):
    x = torch.ones(2, 3, requires_grad=True) * 2
    with pytest.raises(UsageError, match="cannot be copied"):
        torchsan.fix(module.loss, module.Net(), x)


@pytest.mark.parametrize("first", ["torchsan.fix", "torchsan.fix.engine", "torchsan.commands.fix"])
def test_package_and_function_are_one_name(first):
    code = f"import torchsan, {first}; assert callable(torchsan.fix); import torchsan.fix.trial; assert callable(torchsan.fix)"
    subprocess.run([sys.executable, "-c", code], check=True)
