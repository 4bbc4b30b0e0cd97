"""Models and factories that misbehave: one sentence, never a traceback, never the end of the program."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchsan
from torchsan.errors import UsageError
from torchsan.verify.loading import load
from torchsan.verify.subject import Subject


class Quits(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sys.exit(3)


class NoCopies(nn.Module):
    def __deepcopy__(self, memo: Any) -> Any:
        raise SystemExit("no copies")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class OwnGenerator(nn.Module):
    """Its random numbers come from no seed that could be set."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator()
        generator.seed()
        return x + torch.rand(x.shape, generator=generator)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Quits(), "eager itself cannot run the example: SystemExit"),
        (NoCopies(), "cannot be copied"),
        (OwnGenerator(), "not deterministic"),
        (nn.Linear(2, 2, device="meta"), "meta device"),
    ],
)
def test_models_are_refused_in_one_sentence(model: nn.Module, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        torchsan.verify(model, (torch.ones(2, 2),), methods=["jit.trace"])
    assert "\n" not in str(caught.value)


FACTORIES = """
import sys

class Odd(BaseException):
    pass

def odd():
    raise Odd("very")

def leaves():
    sys.exit(4)

def generates():
    yield 1

def needs(something):
    return something
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("odd", "raised Odd"),
        ("leaves", "raised SystemExit"),
        ("generates", "must return"),
        ("needs", "missing 1 required"),
        ("absent", "has no 'absent'"),
    ],
)
def test_factories_are_refused_in_one_sentence(tmp_path: Path, name: str, words: str) -> None:
    path = tmp_path / f"factories_{name}.py"
    path.write_text(FACTORIES)
    with pytest.raises(UsageError, match=words):
        load(f"{path}:{name}", None, 0)


class SlowCapture(nn.Module):
    """Quick in eager mode, and slow when it is traced and run again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_a_capture_that_gives_no_answer_does_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchsan.verify import hunt
    from torchsan.verify.methods import Captured
    from torchsan.verify.timing import now
    from torchsan.verify.truth import Truth

    def sleeps(*args: Any) -> Any:
        time.sleep(3600)

    subject = Subject(SlowCapture(), (torch.ones(2),), {}, limit=0.2)
    truth = Truth(subject, now() + 600)
    truth.establish()
    trial = hunt.Trial("export", Captured("export", lambda: sleeps))
    hunt.check(trial, truth, now() + 600)
    assert trial.outcome == "unfinished"
    assert "example" in trial.untried
