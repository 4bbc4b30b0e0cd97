"""Who holds an object is told as its user would write it."""

from __future__ import annotations

import pytest
import torch

from torchsan.observe.kept.upward import Upward


def name_of(starts):
    """Of the one in the list: a variable of ours would be its name."""
    way = Upward(starts).way(id(starts[0]))
    return way.path if way is not None else None


@pytest.fixture
def bank():
    steps = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)])
    return torch.nn.ModuleDict({"steps": steps})


def test_a_buffer_by_its_path(bank):
    assert name_of([bank["steps"][1].running_mean]) == "bank.steps.1.running_mean"


def test_a_parameter_by_its_path(bank):
    assert name_of([bank["steps"][0].weight]) == "bank.steps.0.weight"


def test_an_entry_of_a_plain_dictionary(bank):
    bank.kept = {"weights": [torch.zeros(1)]}
    assert name_of([bank.kept["weights"][0]]) == "bank.kept['weights'][0]"
