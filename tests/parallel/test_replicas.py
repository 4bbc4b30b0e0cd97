"""Replicas that differ: on purpose between averages, for a reason that is told elsewhere, or by crossed sums."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import run_ranks

START = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
"""

# Everything is gone when the function returns: nobody sees the weights after the last average.
OUTER = """
def train(managed):
    net = torch.nn.Linear(3, 2)
    ddp = DDP(net) if managed else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1 * (1 + rank))
    anchor = [p.detach().clone() for p in net.parameters()]
    for step in range(1, 10):
        optimizer.zero_grad()
        net(torch.randn(4, 3) + rank).square().mean().backward()
        optimizer.step()
        if step % 3 == 0:
            with torch.no_grad():
                moved = [a - p for a, p in zip(anchor, net.parameters())]
                for d in moved:
                    dist.all_reduce(d)
                for a, d, p in zip(anchor, moved, net.parameters()):
                    p.copy_(a.sub_(0.7 * d / world))

train(False)
train(True)
dist.destroy_process_group()
"""

# Ends in the middle of a round, with the model in sight.
UNFINISHED = """
net = torch.nn.Linear(3, 2)
ddp = DDP(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(1, 9):
    optimizer.zero_grad()
    with ddp.no_sync():
        ddp(torch.randn(4, 3) + rank).square().mean().backward()
    optimizer.step()
    if step % 3 == 0:
        with torch.no_grad():
            for p in net.parameters():
                dist.all_reduce(p, op=dist.ReduceOp.AVG)
dist.destroy_process_group()
"""

# As many elements as the gradients have are summed after each backward, and yet no gradient is.
WATCHED_ONLY = """
net = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    net(torch.randn(4, 3) + rank).square().mean().backward()
    apart = torch.cat([p.detach().flatten() for p in net.parameters()])
    dist.all_reduce(apart, op=dist.ReduceOp.MAX)
    optimizer.step()
dist.destroy_process_group()
"""

# A check of the weights makes nothing equal.
CHECKED = """
net = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1 * (1 + rank))  # TS410
for step in range(3):
    optimizer.zero_grad()
    net(torch.randn(4, 3) + rank).square().mean().backward()
    flat = torch.cat([p.grad.flatten() for p in net.parameters()])
    dist.all_reduce(flat, op=dist.ReduceOp.AVG)
    net.weight.grad.copy_(flat[:6].view(2, 3))
    net.bias.grad.copy_(flat[6:])
    optimizer.step()
    low = torch.cat([p.detach().flatten() for p in net.parameters()])
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
dist.destroy_process_group()
"""

# Two sums of the same size that meet each other, of variables with one name.
CROSSED = """
one, two = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD([*one.parameters(), *two.parameters()], lr=0.1)

def first(x):
    one(x).square().mean().backward()
    flat = torch.cat([p.grad.flatten() for p in one.parameters()])
    dist.all_reduce(flat, op=dist.ReduceOp.AVG)  # TS405
    put(one, flat)

def second(x):
    two(x).square().mean().backward()
    flat = torch.cat([p.grad.flatten() for p in two.parameters()])
    dist.all_reduce(flat, op=dist.ReduceOp.AVG)
    put(two, flat)

def put(module, flat):
    module.weight.grad.copy_(flat[:6].view(2, 3))
    module.bias.grad.copy_(flat[6:])

for step in range(4):
    optimizer.zero_grad()
    for task in (second, first) if rank and step % 2 else (first, second):
        task(torch.randn(4, 3) + rank)
    optimizer.step()
dist.destroy_process_group()
"""

# The race is told; that the weights part is its consequence.
RACED = """
net = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    net(torch.randn(4, 3) + rank).square().mean().backward()
    for p in net.parameters():
        work = dist.all_reduce(p.grad, async_op=True)
        p.grad.mul_(0.5 + rank)  # TS402
        work.wait()
        p.grad.add_(rank)
    optimizer.step()
dist.destroy_process_group()
"""

# Started inside the backward, and nobody waits before the step.
HOOKED = """
net = torch.nn.Linear(3, 2)

def summed(p):
    dist.all_reduce(p.grad, async_op=True)  # TS403

for p in net.parameters():
    p.register_post_accumulate_grad_hook(summed)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad(set_to_none=False)
    net(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
"""

# An optimizer that waits in its own step, and a barrier, which waits for all that was begun.
WAITED = """
works = []
net = torch.nn.Linear(3, 2)
for p in net.parameters():
    p.register_post_accumulate_grad_hook(lambda p: works.append(dist.all_reduce(p.grad, async_op=True)))

class Waiting(torch.optim.SGD):
    def step(self, closure=None):
        while works:
            works.pop().wait()
        return super().step(closure)

optimizer = Waiting(net.parameters(), lr=0.1)
plain = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    net(torch.randn(4, 3)).square().mean().backward()
    if step % 2:
        works.clear()
        dist.barrier()
        plain.step()
    else:
        optimizer.step()
dist.destroy_process_group()
"""

# The sum is bound to the buffer in place, in a module inside of the wrapped one.
COUNTED = """
class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        self.seen += torch.tensor([len(x), rank + 1.0])  # TS412
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.layer(x)

ddp = DDP(torch.nn.Sequential(torch.nn.Linear(3, 3), Head()))
for step in range(3):
    ddp(torch.randn(4, 3) + rank).square().mean().backward()
dist.destroy_process_group()
"""

# Every rank has a part of its own, which DDP was told to leave alone.
OWN_PART = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = torch.nn.Linear(3, 3)
        self.own = torch.nn.Linear(3, 2)
        torch.nn.init.uniform_(self.own.weight, -1 - rank, 1)

    def forward(self, x):
        return self.own(self.shared(x))

net = Model()
DDP._set_params_and_buffers_to_ignore_for_model(net, ["own.weight", "own.bias"])
ddp = DDP(net)
optimizer = torch.optim.Adam(ddp.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    ddp(torch.randn(4, 3) + rank).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""

# One rank has fewer batches, and shadows what the other does in the rest.
JOINED = """
from torch.distributed.algorithms.join import Join

ddp = DDP(torch.nn.Linear(3, 2))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for epoch in range(2):
    with Join([ddp]):
        for step in range(7 - 3 * rank):
            optimizer.zero_grad()
            ddp(torch.randn(4, 3) + rank).square().mean().backward()
            optimizer.step()
    count = torch.ones(1)
    dist.all_reduce(count)
dist.destroy_process_group()
"""

# DDP copies the buffers of one net before each of its calls; what is handed to the call has nothing to do with them.
ADVERSARIES = """
class Trainer:
    def __init__(self):
        self.maker = DDP(torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3)))
        self.judge = DDP(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)))
        self.of_judge = torch.optim.Adam(self.judge.parameters(), lr=0.01)

    def noise(self):
        return torch.randn(8, 2)

    def step(self):
        fake = self.maker(self.noise()).detach()
        on_real = self.judge(torch.randn(8, 3) + rank)
        on_fake = self.judge(fake)
        self.of_judge.zero_grad()
        (on_fake.sigmoid().mean() - on_real.sigmoid().mean()).backward()
        self.of_judge.step()

trainer = Trainer()
for step in range(8):
    trainer.step()
dist.destroy_process_group()
"""

# One rank makes a step less, and all of them are given the same weights in the end.
PASSED_OVER = """
ddp = DDP(torch.nn.Linear(3, 2))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(9):
    optimizer.zero_grad()
    ddp(torch.randn(4, 3) + rank).square().mean().backward()
    if rank == 1 and step == 2:
        continue
    optimizer.step()
for p in ddp.parameters():
    dist.broadcast(p.data, 0)
dist.destroy_process_group()
"""

PROGRAMS = {
    "passed over": PASSED_OVER,
    "outer": OUTER,
    "unfinished": UNFINISHED,
    "watched": WATCHED_ONLY,
    "checked": CHECKED,
    "crossed": CROSSED,
    "raced": RACED,
    "hooked": HOOKED,
    "waited": WAITED,
    "counted": COUNTED,
    "own part": OWN_PART,
    "joined": JOINED,
    "adversaries": ADVERSARIES,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_told_once_at_its_line_or_not_at_all(tmp_path: Path, name: str) -> None:
    path = tmp_path / "program.py"
    path.write_text((START + PROGRAMS[name]).lstrip("\n"))
    ranks = run_ranks(path)
    assert ranks.statuses == [0, 0], ranks.outputs
    lines = enumerate(path.read_text().splitlines(), 1)
    expected = {(line.rpartition("# ")[2], number) for number, line in lines if "# TS" in line}
    told = [f for f in ranks.report.findings if f.certainty != "possible"]
    assert {(f.code, f.primary.line) for f in told} == expected, ranks.report.findings
    assert ranks.report.notes == []
