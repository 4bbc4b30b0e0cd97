"""`verify --method compile`: gradients count as much as values; graph breaks have their lines."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from torchsan.verify.api import as_subject, chosen_methods
from torchsan.verify.compiled import CompiledFacts, compiled_facts

pytestmark = pytest.mark.filterwarnings("ignore")


class RunningMean(nn.Module):
    """Torch 2.13 computes its values right and its gradients wrong: the mean is kept after its update."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.register_buffer("mean", torch.ones(3))

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.lin(x) * self.mean


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x):
        h = self.lin(x)
        if h.sum().item() > 1e9:
            h = h * 2
        return torch.tanh(h)


def _facts(model: nn.Module) -> CompiledFacts:
    torch.manual_seed(0)
    return compiled_facts(as_subject(model, (torch.randn(4, 3),), None, 0, ""), "aot_eager")


def _truly_differs(model: nn.Module) -> bool:
    """By plain torch, without any of our code."""
    grads = []
    for compiled in (False, True):
        torch.manual_seed(0)
        copy = type(model)()
        torch._dynamo.reset()
        call = torch.compile(copy, backend="aot_eager") if compiled else copy
        call(torch.randn(4, 3)).pow(2).sum().backward()
        grads.append(copy.lin.weight.grad)
    return not torch.allclose(*grads, rtol=1e-3)


@pytest.mark.parametrize("model", [RunningMean, Branching])
def test_gradients_are_judged_as_plain_torch_shows(model):
    facts = _facts(model())
    assert (facts.gradients == "differs") == _truly_differs(model())
    assert bool(facts.departs) == (facts.gradients == "differs")


def test_a_graph_break_has_its_line_and_reason():
    facts = _facts(Branching())
    (found,) = facts.breaks
    lines = Path(__file__).read_text().splitlines()
    assert found.place is not None
    assert "h.sum().item()" in lines[found.place.line - 1]
    assert "item" in found.reason
    assert found.edit
    assert facts.recompiles == 0


class Choosing(Branching):
    def forward(self, x):
        h = self.lin(x)
        if h.sum() > 1e9:
            h = h * 2
        return torch.tanh(h)


def test_a_branch_on_a_tensor_is_told_in_words():
    (found,) = _facts(Choosing()).breaks
    assert "decided by a tensor's value" in found.reason
    assert "torch.where" in found.edit


def test_gradients_of_a_random_model_are_not_compared():
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5))
    subject = as_subject(model, (torch.randn(4, 3),), None, 0, "")
    facts = compiled_facts(subject, "aot_eager", random=True)
    assert facts.departs == ""
    assert facts.gradients.startswith("not compared")


def _by_method() -> nn.Module:
    model = Branching()
    model.compile(backend="aot_eager")
    return model


class Decorated(nn.Module):
    @torch.compile(backend="aot_eager")
    def forward(self, x):
        return x * 2


@pytest.mark.parametrize(
    ("model", "compiles"),
    [
        (torch.compile(Branching(), backend="aot_eager"), True),
        (nn.Sequential(nn.ReLU(), torch.compile(nn.Linear(3, 3), backend="aot_eager")), True),
        (_by_method(), True),
        (Decorated(), True),
        (torch.compile(torch.tanh, backend="aot_eager"), True),
        (Branching(), False),
        (torch.tanh, False),
    ],
    ids=["module", "inner module", "its compile()", "decorated forward", "function", "plain", "plain function"],
)
def test_what_the_program_compiles_is_verified_compiled(model, compiles):
    assert ("compile" in chosen_methods(None, model)[0]) == compiles
    assert ("compile" in chosen_methods(["export"], model)[0]) is False


def test_a_compiled_model_is_captured_as_what_it_was_made_from():
    plain = Branching()
    subject = as_subject(torch.compile(plain, backend="aot_eager"), (torch.randn(4, 3),), None, 0, "model = make()")
    assert subject.model is plain
    assert subject.origin.endswith("model = model._orig_mod")


@torch.compiler.disable
def _product(x, weight):
    return x @ weight


class Failing(nn.Module):
    """A write through `.data` counts as one where it is compiled, and not in eager."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))

    def forward(self, x):
        h = _product(x, self.weight)
        self.weight.data.mul_(0.5)
        return h * 2


def test_gradients_that_only_eager_has_count_as_wrong():
    facts = _facts(Failing())
    assert facts.gradients == "fail"
    assert "eager computes them" in facts.departs
