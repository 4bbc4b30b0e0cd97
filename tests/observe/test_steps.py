"""Steps of optimizers as listeners hear of them."""

from __future__ import annotations

import pytest
import torch

from torchsan.observe.steps import OptimizerStep, StepHooks


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
