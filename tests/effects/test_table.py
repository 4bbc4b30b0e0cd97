"""The effects table: what it says, by which names it is found, and that torch still agrees."""

from __future__ import annotations

import subprocess
import sys

import pytest

from torchsan import effects
from torchsan.effects import table
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
    from torchsan.effects.probe import probe

    sample = ["exp", "mul", "sigmoid_", "bmm", "nn.functional.linear", "nn.ReLU", "cumsum", "sqrt", "gather", "pow"]
    fresh = probe(sample)
    assert {name: fresh[name] for name in sample} == {name: table._rows()[name] for name in sample}


def test_the_version_of_torch_is_read_without_importing_it():
    code = "import sys; from torchsan.effects import installed_torch as v; print(v(), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    import torch

    assert done.stdout.split() == [torch.__version__, "False"]


@pytest.fixture
def torch_at_hand(monkeypatch):
    """Pretend that another torch is installed."""
    caches = (table._rows, table.table_version, table.lookup)

    def pretend(version):
        monkeypatch.setattr(table, "installed_torch", lambda: version)
        for cached in caches:
            cached.cache_clear()

    yield pretend
    for cached in caches:
        cached.cache_clear()


@pytest.mark.parametrize(
    ("version", "used"), [("2.9.0", "2.9.1"), ("2.13.0+cpu", "2.13.0"), ("2.8.0", "2.9.1"), ("1.13.1", "2.9.1")]
)
def test_each_torch_gets_its_own_rows(torch_at_hand, version, used):
    torch_at_hand(version)
    assert effects.table_version() == used
    needs_itself = effects.lookup("ldexp").needed("other", {"other"})
    assert needs_itself is (used == "2.9.1")


def test_a_newer_torch_gets_the_newest_rows(torch_at_hand):
    torch_at_hand("2.99.0")
    newest = effects.table_version()
    torch_at_hand(None)
    assert effects.table_version() == newest


def test_ops_that_differ_between_versions_are_known(torch_at_hand):
    torch_at_hand("2.13.0")
    assert "2.9.1" in effects.differing_versions("torch.ldexp")
    assert effects.differing_versions("exp") == []
    assert effects.differing_versions("no_such_op") == []
