"""Traces are held against their models, and the guilty line is named."""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torchsan
from tests.verify import programs
from torchsan.verify.subject import attributes_of, identical, tensors_of


def marked(factory: Callable[[], Any]) -> tuple[str, int]:
    """The code and line that the model's source marks."""
    lines, first = inspect.getsourcelines(type(factory()[0]))
    for offset, line in enumerate(lines):
        if "# <- " in line:
            return line.rpartition("# <- ")[2].strip(), first + offset
    raise AssertionError("nothing is marked")


@pytest.mark.parametrize("factory", programs.UNFAITHFUL, ids=lambda f: f.__name__)
def test_a_wrong_trace_is_not_called_faithful_and_its_cause_is_named(factory: Callable[[], Any]) -> None:
    code, line = marked(factory)
    report = torchsan.verify(*factory(), methods=["jit.trace"])
    (capture,) = report.captures
    assert capture.outcome in ("unfaithful", "failed")
    places = {(f.code, Path(f.primary.path).name, f.primary.line) for f in report.findings}
    assert (code, "programs.py", line) in places
    assert capture.finding is not None


@pytest.mark.parametrize("factory", programs.FAITHFUL, ids=lambda f: f.__name__)
def test_a_right_trace_is_faithful_and_nothing_is_said(factory: Callable[[], Any]) -> None:
    report = torchsan.verify(*factory(), methods=["jit.trace"])
    assert [(c.outcome, c.reason) for c in report.captures] == [("faithful", "")]
    assert report.findings == []


def test_model_inputs_and_random_state_stay_as_they_were() -> None:
    model, args = programs.table()
    model.norm = torch.nn.BatchNorm1d(3)
    inputs = copy.deepcopy(args)
    before = tensors_of(model), attributes_of(model), torch.get_rng_state(), random.getstate()
    torchsan.verify(model, args, methods=["jit.trace", "export"])
    after = tensors_of(model), attributes_of(model), torch.get_rng_state(), random.getstate()
    assert all(identical(before[0][name], after[0][name]) for name in before[0])
    assert before[1] == after[1]
    assert torch.equal(before[2], after[2])
    assert before[3] == after[3]
    assert torch.equal(args[0], inputs[0])


def test_a_global_that_forward_counts_in_is_put_back() -> None:
    before = programs.ROUNDS
    torchsan.verify(*programs.global_counter(), methods=["jit.trace"])
    assert before == programs.ROUNDS


def test_a_loop_over_a_dimension_is_right_on_values_and_wrong_on_sizes() -> None:
    report = torchsan.verify(*programs.rows(), methods=["jit.trace"])
    checks = report.captures[0].checks
    assert checks["values"] == "agrees"
    assert checks["x.shape[0]"] in ("differs", "refuses")
    assert checks["x.shape[1]"] == "agrees"


def test_every_tracer_warning_is_judged() -> None:
    notes = torchsan.verify(*programs.halved(), methods=["jit.trace"]).notes
    assert any("TracerWarning" in note and "harmful, see TS304" in note for note in notes)


def test_two_runs_say_the_same() -> None:
    first, second = (torchsan.verify(*programs.narrow_branch(), methods=["jit.trace"]) for _ in range(2))
    assert first.captures == second.captures
    assert first.findings == second.findings
