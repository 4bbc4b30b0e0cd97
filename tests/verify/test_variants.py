"""What is tried: arguments left out, sizes together, random numbers, and what a small budget leaves."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest
import torch
from torch import nn

import torchsan
from torchsan.model import Capture
from torchsan.verify import distribution
from torchsan.verify.api import as_subject
from torchsan.verify.compare import Tolerance
from torchsan.verify.subject import Subject
from torchsan.verify.timing import now
from torchsan.verify.truth import Truth
from torchsan.verify.variants import given_variants


def captures(model: Any, args: Any, kwargs: Any = None, *, methods: list[str], **options: Any) -> dict[str, Capture]:
    return {c.method: c for c in torchsan.verify(model, args, kwargs, methods=methods, **options).captures}


class Masked(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, scale: float = 1.0) -> torch.Tensor:
        if mask is not None:
            x = x * mask
        return x * scale


def test_optional_arguments_are_left_out_where_the_capture_keeps_the_signature() -> None:
    found = captures(Masked(), (torch.ones(2, 3), torch.zeros(2, 3), 2.0), methods=["jit.script", "jit.trace"])
    assert found["jit.script"].checks["arguments left out"] == "agrees"
    assert found["jit.trace"].checks["arguments left out"] == "fixed"
    assert found["jit.trace"].outcome == "faithful"


def test_positional_arguments_after_one_left_out_are_given_by_name() -> None:
    subject = Subject(Masked(), (torch.ones(2), torch.zeros(2), 2.0), {})
    args, kwargs = subject.inputs(left_out=("mask",))
    assert len(args) == 1
    assert kwargs == {"scale": 2.0}


def test_what_is_given_as_the_default_is_not_left_out() -> None:
    found = captures(Masked(), (torch.ones(2, 3), None, 1.0), methods=["jit.script"])
    assert "arguments left out" not in found["jit.script"].checks


class Pooled(nn.Module):
    """Height and width may each change alone, but the branch sees both."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum((2, 3)) if x.shape[2] * x.shape[3] < 80 else x.mean((2, 3))


def test_sizes_are_changed_together_too() -> None:
    found = captures(Pooled(), (torch.ones(1, 2, 5, 5),), methods=["jit.trace"])
    assert found["jit.trace"].checks["several sizes"] == "differs"
    assert found["jit.trace"].outcome == "unfaithful"


class PerPicture(nn.Module):
    """After the loss has broadcast its inputs the tracer takes the first for what it was made into."""

    def forward(self, images: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(made, images, reduction="sum") / images.size(0)


def test_one_input_of_size_one_is_broadcast_in_a_trace_as_in_eager() -> None:
    found = captures(PerPicture(), (torch.rand(3, 4), torch.rand(3, 4)), methods=["jit.trace", "export"])
    assert found["jit.trace"].checks["images.shape[0] alone"] == "differs"
    assert found["export"].outcome == "faithful"
    assert "images.shape[0] alone" not in found["export"].checks


class Shrinks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[1] >= 8 else x * 3


def test_smaller_sizes_are_tried_although_larger_ones_agree() -> None:
    found = captures(Shrinks(), (torch.ones(2, 8),), methods=["jit.trace"])
    assert found["jit.trace"].checks["x.shape[1]"] == "differs"


class Together(nn.Module):
    """Each input may have another batch alone, by broadcasting; all of them with a batch of 1 is a branch."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        both = x.sum() + y.sum()
        return both * 0 if x.shape[0] == y.shape[0] == 1 else both


def test_the_batch_of_all_inputs_at_once() -> None:
    found = captures(Together(), (torch.ones(2, 3), torch.ones(2, 3)), methods=["jit.trace"])
    assert found["jit.trace"].outcome == "unfaithful"


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


class PythonInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Swish.apply(self.mix(x))


def test_a_trace_that_cannot_be_saved_is_not_spoiled_by_its_own_checks() -> None:
    report = torchsan.verify(PythonInside(), (torch.ones(2, 3),), methods=["jit.trace"])
    assert report.captures[0].outcome == "faithful"
    assert any("cannot be saved" in note for note in report.notes)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_a_function_is_scripted_as_a_function() -> None:
    assert captures(scaled, (torch.ones(2),), methods=["jit.script"])["jit.script"].outcome == "faithful"


class Noisy(nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.by * torch.randn_like(x)


def test_a_random_model_whose_capture_draws_the_same_numbers_is_compared_number_by_number() -> None:
    found = captures(Noisy(1.0), (torch.ones(2, 4),), methods=["jit.trace", "export"])
    assert {c.outcome for c in found.values()} == {"faithful"}
    assert found["jit.trace"].checks["random draws"] == "agrees"


def test_a_capture_that_draws_others_is_compared_in_distribution() -> None:
    pytest.importorskip("onnxruntime")
    found = captures(Noisy(0.5), (torch.ones(2, 3),), methods=["onnx"])
    assert found["onnx"].outcome == "faithful"
    assert found["onnx"].checks["values"] == "agrees (in distribution)"


def test_means_and_variances_beyond_chance_are_told_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    want = torch.randn(512, 50, generator=generator, dtype=torch.float64)
    same = torch.randn(512, 50, generator=generator, dtype=torch.float64)
    assert not distribution.beyond_margin(want, same, Tolerance())
    assert {m[0] for m in distribution.beyond_margin(want, same + 1, Tolerance())} >= {"mean"}
    assert {m[0] for m in distribution.beyond_margin(want, same * 2, Tolerance())} == {"variance"}
    frozen = same[:1].expand(512, 50)
    assert distribution.beyond_margin(want, frozen, Tolerance())


class Imported(nn.Module):
    """Draws from another generator than the capture does, and twice as much."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_tracing():
            return x + 3 * torch.rand_like(x) + 0 * torch.rand_like(x)
        return x + torch.rand_like(x)


def make_imported() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Imported(), (torch.ones(2, 3),)


def test_another_distribution_is_unfaithful_and_its_program_fails_by_itself() -> None:
    origin = f"from {__name__} import make_imported\nmodel, args = make_imported()\nkwargs = {{}}"
    capture = captures(*make_imported(), methods=["jit.trace"], origin=origin)["jit.trace"]
    if capture.outcome == "failed":
        pytest.skip("this torch refuses to trace it")
    assert capture.outcome == "unfaithful"
    assert capture.counterexample is not None
    done = subprocess.run([sys.executable, "-c", capture.counterexample], capture_output=True, text=True)
    assert "AssertionError" in done.stderr


class Slow(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.2)
        return x


def test_what_the_budget_left_out_is_not_called_faithful() -> None:
    report = torchsan.verify(Slow(), (torch.ones(2),), methods=["jit.trace"], budget=0.5)
    (capture,) = report.captures
    assert capture.outcome == "unfinished"
    assert "budget" in capture.reason
    assert not report.extra["best_is_faithful"]
    assert any("budget" in note for note in report.notes)


def test_the_truth_knows_whether_a_model_draws() -> None:
    for model, random in ((Noisy(1.0), True), (nn.Linear(3, 3), False)):
        truth = Truth(Subject(model, (torch.ones(2, 3),), {}), now() + 600)
        truth.establish()
        truth.explore(values=2, sizes=2)
        assert truth.random is random


def test_given_calls_are_tried_alone_and_in_their_order() -> None:
    more = [(torch.ones(3, 4),), (torch.ones(6, 4),), (torch.ones(3, 4), 1)]
    subject = as_subject(nn.Linear(4, 2), (torch.zeros(3, 4),), None, 0, more=more)
    found = list(given_variants(subject))
    assert [variant.kind for variant in found] == ["values", "size", "calls"]
    assert [tuple(call[0].shape) for call in found[-1].plan(subject).calls] == [(3, 4), (3, 4), (6, 4)]


def test_a_size_that_only_the_given_calls_vary_is_dynamic() -> None:
    class Even(nn.Module):
        def forward(self, x):
            if x.shape[0] not in (3, 11):
                raise ValueError("three or eleven")
            return x * 2

    report = torchsan.verify(Even(), (torch.zeros(3, 4),), methods=["export"], more=[(torch.ones(11, 4),)])
    (capture,) = report.captures
    assert "the other inputs that were given" in capture.checks
