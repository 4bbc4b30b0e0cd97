"""The other ways of capturing, the best choice, and the code that is handed over."""

from __future__ import annotations

import warnings

import pytest
import torch

import torchsan
from tests.verify import programs
from torchsan.errors import UsageError
from torchsan.model import Report
from torchsan.verify.methods import has_writes, onnx_missing


def outcomes(report: Report) -> dict[str, str]:
    return {capture.method: capture.outcome for capture in report.captures}


def test_export_makes_every_dimension_dynamic_that_can_vary() -> None:
    report = torchsan.verify(*programs.attention(), methods=["export"])
    assert outcomes(report) == {"export": "faithful"}
    assert "dynamic_shapes=({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO" in report.extra["code"]
    names = {dimension["name"] for dimension in report.extra["dimensions"]}
    assert {"x.shape[0]", "x.shape[1]"} <= names


def test_the_recommended_code_runs_and_takes_another_batch() -> None:
    model, args = programs.attention()
    report = torchsan.verify(model, args, methods=["export"])
    code = "\n".join(line for line in report.extra["code"].splitlines() if "save" not in line)
    scope = {"torch": torch, "model": model, "args": args}
    exec(code, scope)
    other = torch.randn(3, 7, 4)
    assert torch.allclose(scope["captured"].module()(other), model(other), atol=1e-6)


def test_a_batch_of_one_is_no_reason_to_fix_the_batch() -> None:
    report = torchsan.verify(torch.nn.Linear(3, 2), (torch.ones(1, 3),), methods=["export"])
    assert outcomes(report) == {"export": "faithful"}
    assert report.captures[0].checks["input.shape[0]"] == "agrees"


def test_export_freezes_a_counter_silently_and_trace_refuses() -> None:
    report = torchsan.verify(*programs.late(), methods=["export", "jit.trace"])
    assert outcomes(report)["export"] == "unfaithful"
    assert {finding.code for finding in report.findings} == {"TS305"}
    assert not report.extra["best_is_faithful"]


def test_script_keeps_a_loop_that_trace_unrolls() -> None:
    report = torchsan.verify(*programs.rare_branch(), methods=["jit.script", "jit.trace"])
    assert outcomes(report) == {"jit.script": "faithful", "jit.trace": "unfaithful"}
    assert report.extra["best"] == "jit.script"
    assert any("deprecated" in note for note in report.notes)


def test_a_failed_export_is_explained_at_the_users_line() -> None:
    report = torchsan.verify(*programs.rare_branch(), methods=["export"])
    (capture,) = report.captures
    assert capture.outcome == "failed"
    assert "programs.py:" in capture.reason
    assert "tensor's value" in capture.reason
    assert len(capture.reason.splitlines()) == 1
    assert [finding.code for finding in report.findings] == ["TS301"]


@pytest.mark.slow
def test_strict_export_and_compile() -> None:
    report = torchsan.verify(*programs.attention(), methods=["export-strict", "export-static", "compile"])
    assert outcomes(report)["export-strict"] == "faithful"
    assert outcomes(report)["compile"] == "faithful"
    assert outcomes(report)["export-static"] == "unfaithful"


@pytest.mark.slow
@pytest.mark.skipif(bool(onnx_missing()), reason="the extra onnx is not installed")
def test_onnx_runs_in_onnxruntime() -> None:
    model, args = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()), (torch.ones(2, 3),)
    assert outcomes(torchsan.verify(model, args, methods=["onnx"])) == {"onnx": "faithful"}


def test_a_function_can_be_captured() -> None:
    report = torchsan.verify(lambda x: x * 2 + 1, (torch.ones(2),), methods=["jit.trace"])
    assert outcomes(report) == {"jit.trace": "faithful"}


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (programs.broken, "eager itself cannot run"),
        (programs.clock, "not deterministic"),
        (programs.locked, "cannot be copied"),
    ],
)
def test_models_that_cannot_be_judged_are_refused_in_one_sentence(factory, words) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        torchsan.verify(*factory(), methods=["jit.trace"])
    assert "\n" not in str(caught.value)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="there is no method"):
        torchsan.verify(torch.nn.Linear(1, 1), (torch.ones(1),), methods=["magic"])
    with pytest.raises(UsageError, match=r"torch\.nn\.Module"):
        torchsan.verify(3, (torch.ones(1),))


def test_attributes_that_are_results_of_computations_do_not_stand_in_the_way() -> None:
    model = torch.nn.Linear(3, 2)
    model.cached = model.weight * 2
    assert outcomes(torchsan.verify(model, (torch.ones(2, 3),), methods=["jit.trace"])) == {"jit.trace": "faithful"}


class PlainTensor(torch.nn.Module):
    """Keeps a count in a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.count = torch.zeros(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count


class Appends(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = [1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(2)
        return x * len(self.seen)


def test_a_capture_is_used_again_only_when_nothing_hidden_can_have_changed() -> None:
    x = torch.ones(3)
    rectified = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(inplace=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        leaves_something = [
            torch.jit.trace(PlainTensor(), x, check_trace=False),
            torch.jit.script(PlainTensor()),
            torch.jit.script(Appends()),
            torch.export.export(PlainTensor(), (x,)),
        ]
        leaves_nothing = [torch.jit.trace(rectified, x), torch.export.export(torch.nn.Linear(3, 3), (x,))]
    assert all(has_writes(capture) for capture in leaves_something)
    assert not any(has_writes(capture) for capture in leaves_nothing)


def test_a_method_is_known_by_the_name_of_its_function() -> None:
    report = torchsan.verify(torch.nn.Linear(3, 2), (torch.randn(2, 3),), methods=["torch.jit.trace", "torch.export"])
    assert list(outcomes(report)) == ["jit.trace", "export"]


class Counted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x * 2, x.shape[0]


def test_a_plain_number_that_becomes_a_tensor_is_noted() -> None:
    report = torchsan.verify(Counted(), (torch.randn(3, 2),), methods=["jit.trace", "export"])
    noted = [note for note in report.notes if "plain number" in note]
    assert len(noted) == 1
    assert noted[0].startswith("jit.trace returns a tensor")
