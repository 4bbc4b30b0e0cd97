"""Captures that a program makes are checked as it makes them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchsan
from tests.verify import programs
from torchsan.verify import before_capture, on_the_spot
from torchsan.verify.subject import identical, tensors_of


def spotted(kind: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    before = before_capture(kind, args, kwargs)
    result: Any
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            result = error
    return [finding.code for finding in on_the_spot(kind, function, args, kwargs, result, before=before)]


@pytest.mark.parametrize(
    ("factory", "code"),
    [
        (programs.rare_branch, "TS301"),
        (programs.rows, "TS310"),
        (programs.late, "TS305"),
        (programs.jitter, "TS306"),
    ],
)
def test_traces(factory: Callable[[], Any], code: str) -> None:
    assert code in spotted("torch.jit.trace", torch.jit.trace, *factory())


def test_a_faithful_trace_is_passed_over_in_silence() -> None:
    assert spotted("torch.jit.trace", torch.jit.trace, *programs.attention()) == []
    assert spotted("torch.jit.trace", torch.jit.trace, *programs.recurrent()) == []


def test_exports() -> None:
    assert "TS305" in spotted("torch.export.export", torch.export.export, *programs.late())
    assert spotted("torch.export.export", torch.export.export, *programs.attention()) == []


def test_an_export_for_one_size_is_not_blamed_for_refusing_others() -> None:
    assert spotted("torch.export.export", torch.export.export, *programs.rows()) == []


def test_what_fails_in_eager_mode_too_is_not_ours_to_tell() -> None:
    model = torch.nn.Linear(3, 3)
    assert spotted("torch.jit.trace", torch.jit.trace, model, (torch.ones(2, 4),)) == []


def test_the_live_module_is_left_alone_and_its_change_is_told() -> None:
    model, args = torch.nn.BatchNorm1d(3), (torch.randn(4, 3),)
    assert "TS311" in spotted("torch.jit.trace", torch.jit.trace, model, args)
    after = tensors_of(model)
    traced = torch.jit.trace(torch.nn.BatchNorm1d(3), args, check_trace=False)
    on_the_spot("torch.jit.trace", torch.jit.trace, (model, args), {}, traced)
    assert all(identical(after[name], value) for name, value in tensors_of(model).items())


def test_who_captured_is_told_rightly() -> None:
    """What the program captured is its own module: no copy was made of it."""
    model, args = torch.nn.BatchNorm1d(3), (torch.randn(4, 3),)
    before = before_capture("torch.jit.trace", (model, args), {})
    traced = torch.jit.trace(model, args, check_trace=False)
    findings = on_the_spot("torch.jit.trace", torch.jit.trace, (model, args), {}, traced, before=before)
    (told, *_) = [finding for finding in findings if finding.code == "TS311"]
    assert not any("copy" in note for note in told.notes)
    by_us = torchsan.verify(torch.nn.BatchNorm1d(3), args, methods=["jit.trace"]).findings
    (told, *_) = [finding for finding in by_us if finding.code == "TS311"]
    assert any("copy" in note for note in told.notes)


@pytest.mark.parametrize("rubbish", [(), (None,), (3, 4, 5), ("model", {})])
def test_it_never_raises(rubbish: tuple[Any, ...]) -> None:
    for kind in ("torch.jit.trace", "torch.jit.script", "torch.export.export", "torch.onnx.export", "other"):
        assert on_the_spot(kind, None, rubbish, {}, object()) == []
        assert before_capture(kind, rubbish, {}) is None


def test_an_export_is_held_to_the_dimensions_that_it_declares() -> None:
    model, args = programs.rows()
    shapes = ({0: torch.export.Dim.AUTO},)
    assert "TS310" in spotted("torch.export.export", torch.export.export, model, args, dynamic_shapes=shapes)
    shapes = ({1: torch.export.Dim.AUTO},)
    assert spotted("torch.export.export", torch.export.export, model, args, dynamic_shapes=shapes) == []
