"""The module tree says where eager and a capture part."""

from __future__ import annotations

import torch
from torch import nn

import torchsan


class Gate(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x * 2
        return x - 1


class Sized(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([row * 2 for row in x])


class Net(nn.Module):
    def __init__(self, middle: nn.Module) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.middle = middle
        self.last = nn.Linear(4, 2)
        self.spare = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.middle(self.first(x)))


def tree(model: nn.Module, method: str) -> dict[str, tuple[str, str]]:
    report = torchsan.verify(model, (torch.ones(2, 4),), methods=[method])
    return {row["path"]: (row["verdict"], row["detail"]) for row in report.extra["modules"]}


def test_modules_before_agree_and_the_guilty_one_differs() -> None:
    torch.manual_seed(0)
    found = tree(Net(Gate()), "jit.trace")
    assert found["first.0"][0] == found["first"][0] == "same"
    assert found[""][0] == found["middle"][0] == "differs"
    assert "jit.trace parts from eager here" in found["middle"][1]
    assert found["last"] == ("", "runs after they part")
    assert found["spare"] == ("", "not reached")


def test_a_refusal_is_shown_at_the_module_that_holds_the_line() -> None:
    found = tree(Net(Sized()), "export")
    assert found["middle"][0] == "differs"
    assert found["first"][0] == ""


def test_a_faithful_capture_has_no_tree() -> None:
    assert tree(Net(nn.ReLU()), "jit.trace") == {}
