"""`freeze`: a write raises at the line that writes, by whatever name; `thaw` ends it."""

from __future__ import annotations

import pytest
import torch

import torchsan


@pytest.fixture
def frozen():
    tensor = torchsan.freeze(torch.ones(4))
    yield tensor
    torchsan.thaw(tensor)


WRITES = [
    lambda t: t.add_(1),
    lambda t: t.__setitem__(0, 5),
    lambda t: t[1:].mul_(2),
    lambda t: t.detach().zero_(),
    lambda t: t.data.zero_(),
    lambda t: t.view(2, 2).t().fill_(0),
    lambda t: torch._foreach_add_([t], 1.0),
    lambda t: torch.div(torch.ones(4), 2, out=t),
    lambda t: torch.optim.SGD([_with_grad(t)], lr=1.0).step(),
]


def _with_grad(tensor):
    tensor.requires_grad_()
    tensor.grad = torch.ones(4)
    return tensor


@pytest.mark.parametrize("write", WRITES)
def test_write_raises_and_changes_nothing(frozen, write):
    with pytest.raises(RuntimeError, match=r"frozen at .*test_freezing\.py:\d+, written at .*test_freezing\.py:\d+"):
        write(frozen)
    assert torch.equal(frozen.detach(), torch.ones(4))


def test_other_memory_and_reads_are_free(frozen):
    other = frozen.clone()
    other += frozen.sum()
    assert other[0] == 5


def test_thaw_allows_writes_again():
    tensor = torchsan.freeze(torch.ones(2))
    torchsan.thaw(tensor)
    tensor += 1
    assert "add_" not in vars(torch.Tensor)


def test_freeze_inside_watch():
    with torchsan.watch():
        tensor = torchsan.freeze(torch.ones(2))
        with pytest.raises(RuntimeError, match="frozen at"):
            tensor.add_(1)
        torchsan.thaw(tensor)
        tensor.add_(1)
