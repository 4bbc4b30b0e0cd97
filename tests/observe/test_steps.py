"""Steps of optimizers as listeners hear of them."""

from __future__ import annotations

import pytest
import torch

import torchsan
from torchsan.observe import api
from torchsan.observe.steps import OptimizerStep, StepHooks
from torchsan.observe.tensors import memory_of


class Outer(torch.optim.SGD):
    """An optimizer that lets another one do the work."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__([p for group in inner.param_groups for p in group["params"]], lr=1.0)
        self.inner = inner

    def step(self, closure=None):
        self.inner.step()


class Raising(torch.optim.SGD):
    def step(self, closure=None):
        raise ZeroDivisionError


def _weight() -> torch.nn.Parameter:
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    return weight


@pytest.fixture
def heard():
    errors: list[Exception] = []
    hooks = StepHooks(errors.append)
    steps: list[tuple[str, str, bool, int]] = []

    def note(when: str):
        def listener(step: OptimizerStep) -> None:
            steps.append((when, type(step.optimizer).__name__, step.inner, len(step.parameters)))

        return listener

    hooks.before.append(note("before"))
    hooks.after.append(note("after"))
    hooks.install()
    yield hooks, steps, errors
    hooks.close()


def test_a_step_inside_another_is_told_as_such(heard):
    _, steps, errors = heard
    Outer(torch.optim.SGD([_weight(), _weight()], lr=0.1)).step()
    assert steps == [
        ("before", "Outer", False, 2),
        ("before", "SGD", True, 2),
        ("after", "SGD", True, 2),
        ("after", "Outer", False, 2),
    ]
    assert errors == []


def test_a_step_that_raised_leaves_nothing_behind(heard):
    _, steps, _ = heard
    raising = Raising([_weight()], lr=0.1)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            raising.step()
    torch.optim.SGD([_weight()], lr=0.1).step()
    assert [(when, inner) for when, _, inner, _ in steps] == [("before", False)] * 3 + [("after", False)]


def test_an_error_of_ours_is_not_the_programs(heard):
    hooks, _, errors = heard
    hooks.after.append(lambda step: 1 / 0)
    torch.optim.SGD([_weight()], lr=0.1).step()
    assert [type(error) for error in errors] == [ZeroDivisionError]


def test_nothing_is_heard_after_the_end(heard):
    hooks, steps, _ = heard
    hooks.close()
    torch.optim.SGD([_weight()], lr=0.1).step()
    assert steps == []


def test_nothing_is_heard_while_nobody_watches():
    watching, heard = [False], []
    hooks = StepHooks(heard.append, lambda: watching[0])
    hooks.before.append(heard.append)
    hooks.install()
    try:
        optimizer = torch.optim.SGD([_weight()], lr=0.1)
        optimizer.step()
        assert heard == []
        watching[0] = True
        optimizer.step()
        assert len(heard) == 1
    finally:
        hooks.close()


def test_a_parameter_that_is_given_other_memory_is_known_by_it_at_the_next_step():
    weights = [_weight(), _weight()]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    with torchsan.watch():
        recorder = api._current
        optimizer.step()
        before = recorder.ledger.steps[-1].memories
        assert before == {memory_of(w) for w in weights}
        optimizer.step()
        assert recorder.ledger.steps[-1].memories is before  # nothing has changed: nothing is asked again
        weights[0].data = torch.ones(3)
        optimizer.step()
        assert recorder.ledger.steps[-1].memories == {memory_of(w) for w in weights} != before
        optimizer.param_groups[0]["params"][1] = weights[1] = _weight()
        optimizer.step()
        assert recorder.ledger.steps[-1].memories == {memory_of(w) for w in weights}


def test_only_lines_that_this_recorder_has_met_are_counted():
    x = torch.ones(2, requires_grad=True)
    with torchsan.watch():
        earlier = (x * 2).sum()
    with torchsan.watch():
        recorder = api._current
        later = (x * 3).sum()
        later.backward()
        lines = {site.place.line for site in recorder.met}
    assert earlier is not None
    assert lines == {test_only_lines_that_this_recorder_has_met_are_counted.__code__.co_firstlineno + 6}


def test_a_step_before_anything_was_computed_is_counted():
    optimizer = torch.optim.SGD([_weight()], lr=0.1)
    with torchsan.watch() as report:
        recorder = api._current
        for _ in range(3):
            optimizer.step()
        assert list(recorder.live_nodes) == [0, 0, 0]
        assert len(recorder.ledger.steps) == 3
    assert report.notes == []
