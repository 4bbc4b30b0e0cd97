"""Nothing on the hot path may make a device wait: no value is read, nothing is copied to the CPU.

The meta device stands in for an accelerator. Its tensors are plain ones with autograd, storages and versions, and
have no values: whoever reads one (`item`, `equal`, a copy to the CPU) is refused. A dispatch mode writes down every
op, so that an attempt that we swallow is seen as well.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import torchsan

STEPS = 6
DEVICE = "meta"


class _Log(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is not torch.ops.aten.detach.default:  # another name for the same memory: the device does nothing
            self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 3))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.inner(x)
        self.seen += out.detach().mean(0)
        mask = torch.zeros_like(out)
        mask[:, 1] = 1.0
        return out * mask


def training() -> None:
    net = Net().to(DEVICE)
    shadow = [p.detach().clone() for p in net.parameters()]
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    history = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 6, device=DEVICE)).square().mean()
        loss.backward()
        nn.utils.clip_grad_value_(net.parameters(), 1.0)
        optimizer.step()
        for kept, p in zip(shadow, net.parameters(), strict=True):
            kept.mul_(0.9).add_(p.detach(), alpha=0.1)
        history.append(loss.detach())


def written_through_data() -> None:
    weight = torch.randn(3, 3, device=DEVICE, requires_grad=True)
    for _ in range(STEPS):
        (weight * 2).sum().backward()
        weight.data.add_(weight.grad.data, alpha=-0.1)
        weight.grad.zero_()


def recurrent() -> None:
    cell, state = nn.GRUCell(4, 4).to(DEVICE), torch.zeros(2, 4, device=DEVICE)
    outputs = torch.zeros(STEPS, 2, 4, device=DEVICE)
    for step in range(STEPS):
        state = cell(torch.randn(2, 4, device=DEVICE), state)
        outputs[step] = state
    outputs.sum().backward()


class ThroughData(torch.optim.Optimizer):
    def __init__(self, parameters: object) -> None:
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad.data, alpha=-group["lr"])


def stepped_behind_the_counter() -> None:
    net = Net().to(DEVICE)
    optimizer = ThroughData(net.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad()
        net(torch.randn(4, 6, device=DEVICE)).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("program", [training, written_through_data, recurrent, stepped_behind_the_counter])
def test_the_device_is_asked_nothing(program: Callable[[], None]) -> None:
    with _Log() as alone:
        program()
    with torchsan.watch() as report, _Log() as watched:
        program()
    assert len(alone.ops) > 5 * STEPS
    assert watched.ops == alone.ops
    assert report.notes == []
    assert report.alarms == []
