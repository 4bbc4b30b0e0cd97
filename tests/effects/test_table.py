"""The effects table: what it says, by which names it is found, and that torch still agrees."""

from __future__ import annotations

import subprocess
import sys

import pytest

from torchsan import effects
from torchsan.effects.table import OpEffects


@pytest.mark.parametrize("name", ["exp", "torch.exp", "Tensor.exp", "sigmoid", "F.softmax", "torch.nn.functional.relu"])
def test_ops_that_need_their_result(name):
    row = effects.lookup(name)
    assert row is not None
    assert row.needed("out0", {"input"})
    assert not row.needed("input", {"input"})


@pytest.mark.parametrize("name", ["add", "sub", "cat", "sum", "F.dropout", "clone"])
def test_ops_whose_tensors_may_be_written(name):
    row = effects.lookup(name)
    assert row is not None
    assert not row.needs


def test_a_product_needs_each_factor_for_the_other():
    row = effects.lookup("mul")
    assert row is not None
    assert row.needed("input", {"other"})
    assert not row.needed("input", {"input"})


def test_layers_know_their_parameters():
    row = effects.lookup("nn.Linear")
    assert row is not None
    assert row.needed("input", {"weight"})
    assert row.needed("weight", {"input"})
    assert not row.needed("weight", {"weight"})


def test_memory():
    assert effects.lookup("chunk").view == "multi"
    assert effects.lookup("transpose").view == "view"
    assert effects.lookup("mul_").inplace
    assert effects.lookup("F.leaky_relu_").inplace
    assert not effects.lookup("mul").writes
    assert effects.lookup("normal_").random
    assert effects.lookup("item").readout


def test_unknown_names():
    assert effects.lookup("no_such_op") is None


def test_descriptions_are_plain_words():
    assert effects.lookup("exp").describe() == "exp needs its result to compute the gradient of `input`"
    assert "several views" in effects.lookup("chunk").describe()
    assert "writes to `input`" in effects.lookup("add_").describe()
    assert OpEffects("odd").describe()


def test_every_row_describes_itself():
    for name in effects.names():
        row = effects.lookup(name)
        assert row is None or row.describe()


def test_the_table_is_read_without_torch():
    code = "import sys; sys.modules['torch'] = None; from torchsan import effects; print(effects.lookup('exp').needs)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "out0" in done.stdout, done.stderr


@pytest.mark.slow
def test_torch_still_agrees_with_a_sample_of_the_table():
    pytest.importorskip("expecttest")
    import json
    from pathlib import Path

    import torch

    if not torch.__version__.startswith(effects.table_version()):
        pytest.skip("the table was probed on another torch")
    from torchsan.effects.probe import probe

    sample = ["exp", "mul", "sigmoid_", "bmm", "nn.functional.linear", "nn.ReLU", "cumsum", "sqrt", "gather", "pow"]
    file = Path(effects.table.__file__).with_name("tables") / f"torch-{effects.table_version()}.json"
    known = json.loads(file.read_text())["ops"]
    fresh = probe(sample)
    assert {name: fresh[name] for name in sample} == {name: known[name] for name in sample}
