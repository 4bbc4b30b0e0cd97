"""The program computes the same with and without us: numbers, random state, memory, exceptions."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from tests.observe import harmless_programs

import torchsan

HERE = Path(__file__).parent
NAMES = ["cnn", "transformer", "rnn", "gan", "actor_critic", "checkpointed"]


def _run(name: str, *more: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", HERE / "harmless_programs.py", name, *more],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_training_is_bit_equal(name):
    plain, watched = _run(name), _run(name, "watch")
    assert watched["findings"] == []
    assert watched["notes"] == []
    assert watched["losses"] == plain["losses"]
    assert watched["state"] == plain["state"]
    assert watched["peak_kb"] <= plain["peak_kb"] * 1.05


@pytest.mark.parametrize("name", NAMES)
def test_numbers_state_and_random_stream_are_bit_equal(name, sensor):
    plain, watched = harmless_programs.run(name, False), harmless_programs.run(name, True)
    assert watched["findings"] == []
    assert watched["notes"] == []
    assert watched["losses"] == plain["losses"]
    assert watched["state"] == plain["state"]


def test_everything_is_put_back(sensor):
    before = {name: getattr(torch.Tensor, name) for name in dir(torch.Tensor)}
    functions = {name: value for name, value in vars(torch).items() if callable(value)}
    with torchsan.watch():
        assert torch.Tensor.__setitem__ is not before["__setitem__"]
    assert {name: getattr(torch.Tensor, name) for name in dir(torch.Tensor)} == before
    assert {name: value for name, value in vars(torch).items() if name in functions} == functions
    assert "add_" not in vars(torch.Tensor)
    assert not torch.is_anomaly_enabled()


def test_nothing_saved_lives_longer(sensor):
    with torchsan.watch():
        layer = torch.nn.Linear(4, 4)
        hidden = torch.exp(layer(torch.ones(2, 4)))
        hidden.data.add_(0)
        reference = weakref.ref(hidden)
        hidden.sum().backward()
        del hidden
        assert reference() is None


def test_a_deleted_local_is_freed_at_once(sensor):
    def body() -> bool:
        a = torch.ones(3)
        a += 1
        a.add_(1)
        reference = weakref.ref(a)
        del a
        return reference() is None

    with torchsan.watch():
        assert body()


def test_exception_type_and_text_survive(sensor):
    leaf = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError) as plain:
        leaf.add_(1)
    with pytest.raises(RuntimeError) as watched, torchsan.watch():
        leaf.add_(1)
    assert type(watched.value) is type(plain.value)
    assert str(plain.value) in str(watched.value)
    assert "TS102" in str(watched.value)


def test_retry_after_a_failed_backward_fails_again(sensor):
    with torchsan.watch():
        h = torch.exp(torch.nn.Linear(2, 2)(torch.ones(1, 2)))
        h += 1
        loss = h.sum()
        for _ in range(2):
            with pytest.raises(RuntimeError):
                loss.backward(retain_graph=True)


def test_random_stream_is_untouched(sensor):
    def draw() -> torch.Tensor:
        torch.manual_seed(3)
        h = torch.sigmoid(torch.nn.Linear(4, 4)(torch.randn(2, 4)))
        h.data.mul_(0.5)
        h.sum().backward()
        return torch.rand(5)

    plain = draw()
    with torchsan.watch():
        watched = draw()
    assert torch.equal(plain, watched)


def test_error_inside_a_rule_does_not_reach_the_program(monkeypatch, watch_program):
    from torchsan import rules

    def broken(event, history):
        raise ZeroDivisionError("on purpose")

    registry = dict(rules.all_rules())
    from dataclasses import replace

    registry["TS101"] = replace(registry["TS101"], judge=broken)
    monkeypatch.setattr("torchsan.observe.recorder.all_rules", lambda: registry)
    watched = watch_program(registry["TS101"].bad)
    assert isinstance(watched.error, RuntimeError)
    assert any("TS101" in note and "on purpose" in note for note in watched.report.notes)


def test_error_inside_a_sensor_does_not_reach_the_program(monkeypatch, watch_program):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr("torchsan.observe.sensors.writes.memory_of", broken)
    watched = watch_program("import torch\nx = torch.ones(3)\nx += 1\nx += 1\nassert x.sum() == 9\n")
    assert watched.error is None
    assert any("stepped aside" in note for note in watched.report.notes)


def test_scripting_finds_the_names_around_a_class(tmp_path, monkeypatch):
    (tmp_path / "scripted_pair.py").write_text(
        "import torch\n"
        "@torch.jit.script\n"
        "def double(x: int) -> int:\n"
        "    return 2 * x\n"
        "@torch.jit.script\n"
        "class Pair:\n"
        "    def __init__(self, x: int):\n"
        "        self.x = double(x)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with torchsan.watch() as report:
        importlib.import_module("scripted_pair")
    assert report.notes == []
