"""Hazards of two ranks that lie a function or an object away from the collective, several in one program."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import run_ranks

HAZARDS = """
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch.nn.parallel import DistributedDataParallel as DDP

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


def averaged(loss):
    total = loss.detach().clone() / world
    work = dist.all_reduce(total, async_op=True)
    return total, work


total, work = averaged(torch.tensor(1.0 + rank))
early = total.item()  # TS402
work.wait()


def statistics(sums):
    differentiable.all_reduce(sums)  # TS404
    functional.all_reduce(sums, "sum", dist.group.WORLD)  # TS404
    unused = differentiable.all_reduce(sums)  # TS404
    differentiable.all_reduce(torch.zeros(1))
    gathered = functional.all_gather_tensor(sums, 0, dist.group.WORLD)
    return gathered.sum() + differentiable.all_reduce(sums).sum()


statistics(torch.ones(3, requires_grad=True) * 2).backward()


loss = (torch.ones(3, requires_grad=True) * (1.0 + rank)).sum()
losses = [loss.detach(), loss.detach() * 2]
dist.all_reduce(loss.detach().clone())  # TS404
dist.all_reduce(loss.detach() / world)  # TS404
dist.all_reduce(torch.stack(losses))  # TS404
dist.all_reduce(torch.ones(1, device=loss.device))
dist.all_reduce(loss.new_ones(1))
dist.all_reduce(loss.data)
dist.reduce(losses[1] if rank == 0 else loss.detach().clone(), dst=0)
if rank == 0:
    dist.broadcast(losses[0].clone(), src=0)
else:
    dist.broadcast(losses[0], src=0)


class Counted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        self.seen = self.seen + x.sum().detach()  # TS412
        self.scale = 0.9 * self.scale + 0.1 * x.std().detach()
        return self.layer(x).mean()


counted = DDP(Counted())
for _ in range(3):
    counted(torch.rand(4, 2) + rank).backward()


class Agreement:
    def __init__(self, model):
        self.model, self.previous, self.now, self.first = model, None, None, None

    def after_backward(self):
        self.now = [p.grad for p in self.model.parameters()]
        norm = sum(g.norm() for g in self.now)
        if self.previous is not None:
            norm = norm + sum((a * b).sum() for a, b in zip(self.now, self.previous))
        self.previous = self.now  # TS413
        return norm


net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
ddp = DDP(net, gradient_as_bucket_view=True)
agreement = Agreement(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    ddp(torch.randn(6, 4)).square().mean().backward()
    agreement.after_backward()
    optimizer.step()


def collected(model):
    return [p.grad.detach() for p in model.parameters()]


tasks = DDP(torch.nn.Linear(4, 2), gradient_as_bucket_view=True)
for _ in range(2):
    tasks(torch.randn(6, 4))[:, 0].mean().backward()
    first = collected(tasks)  # TS413
    tasks.zero_grad()
    tasks(torch.randn(6, 4))[:, 1].mean().backward()
    second = collected(tasks)
    both = [a + b for a, b in zip(first, second)]
    tasks.zero_grad()
dist.destroy_process_group()
"""

DTENSORS = """
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = dist.init_device_mesh("cpu", (world,))
torch.manual_seed(0)
bias = distribute_tensor(torch.zeros(4), mesh, [Replicate()])
same = distribute_tensor(torch.zeros(4), mesh, [Replicate()])
for step in range(3):
    seen = bias.to_local().sum() + same.to_local().sum()
    with torch.no_grad():
        bias.to_local().add_(torch.full((4,), 1.0 + rank))  # TS422
        same.to_local().add_(torch.full((4,), 1.0 + step))
weight = torch.nn.Parameter(distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]))
shadow = weight.detach() * 2
backup = weight.data
weight.data = shadow  # TS423
weight.data = backup
with torch.no_grad():
    weight.copy_(shadow)
dist.destroy_process_group()
"""

SENT = """
import torch

net = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
queue = torch.multiprocessing.get_context("fork").Queue()
for version in range(2):
    queue.put((version, {name: p.detach().clone() for name, p in net.named_parameters()}))
    queue.put((version, net.state_dict()))
    optimizer.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()  # TS431
for _ in range(4):
    queue.get()
"""


def marks(source: str) -> set[tuple[str, int]]:
    lines = enumerate(source.splitlines(), 1)
    return {(line.rpartition("# ")[2], number) for number, line in lines if "# TS" in line}


@pytest.mark.parametrize(
    ("source", "world"), [(HAZARDS, 2), (DTENSORS, 2), (SENT, 1)], ids=["collectives", "dtensors", "sent"]
)
def test_each_is_told_at_its_line(tmp_path: Path, source: str, world: int) -> None:
    path = tmp_path / "program.py"
    path.write_text(source.lstrip("\n"))
    ranks = run_ranks(path, world)
    assert ranks.statuses == [0] * world, ranks.outputs
    expected = marks(path.read_text())
    found = {(f.code, f.primary.line) for f in ranks.report.findings if f.code.startswith("TS4")}
    assert found == expected, ranks.report.findings
    # That two lists of gradients are one memory is told as such, too, and is as right.
    assert {f.code for f in ranks.report.findings if not f.code.startswith("TS4")} <= {"TS203"}
    if world == 1:
        return
    everywhere = [f for f in ranks.report.findings if f.code.startswith("TS4") and f.code != "TS412"]
    assert all(finding.ranks == (0, 1) for finding in everywhere)
    assert ranks.report.notes == []
