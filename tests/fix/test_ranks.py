"""Edits that are proved on two ranks: each rank must end as in the run in which nothing comes between the ranks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchsan.errors import UsageError
from torchsan.fix.engine import Engine
from torchsan.fix.labs import environment
from torchsan.fix.ranks import Launch, Ranks, launched
from torchsan.fix.warm import Warm

HEAD = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
"""

IN_FLIGHT = """
import time

total = torch.full((1_000,), 1.0 + rank)
time.sleep(0.2 * rank)
work = dist.all_reduce(total, async_op=True)
mean = total / world
work.wait()
print(mean.sum().item())
"""

STRIDED = """
table = torch.arange(12.0).reshape(3, 4) * (rank + 1)
dist.all_reduce(table[:, 1])
print(table.sum().item())
"""

SAVED = """
w = torch.full((3,), 0.5 + rank, requires_grad=True)
h = w.exp()
dist.all_reduce(h.detach())
(h * h.detach()).sum().backward()
print(w.grad.tolist())
"""

BUFFERS = """
class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        self.scale = 0.5 * self.scale + 0.5 * x.detach().abs().mean(0)
        return (self.weight * x * self.scale).sum()


ddp = DDP(Scaled())
draw = torch.Generator().manual_seed(rank)
loss = ddp(torch.randn(4, 3, generator=draw))
loss = loss + ddp(torch.randn(4, 3, generator=draw))
loss.backward()
print(ddp.module.weight.grad.tolist())
"""

LOADED = """
net = torch.nn.Linear(3, 2)
ddp = DDP(net)
if rank == 0:
    ddp.module.load_state_dict({"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    ddp(torch.ones(4, 3) * (rank + 1)).square().mean().backward()
    optimizer.step()
"""

SHARDED = """
from torch.distributed.fsdp import fully_shard

mesh = dist.init_device_mesh("cpu", (world,))
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
fully_shard(net, mesh=mesh)
for step in range(2):
    optimizer.zero_grad()
    net(torch.ones(2, 4) * (rank + 1)).square().sum().backward()
    optimizer.step()
"""

DROPPED = """
rest = torch.full((1_000,), 1.0 + rank)
dist.all_reduce(rest, async_op=True)
print((rest / world).sum().item())
"""

# One after another in one program: each edit is held against the healed run while the others still do harm.
CASES = {
    "waits and strides": (
        IN_FLIGHT + STRIDED + DROPPED,
        {
            "TS402": "work.wait()\nmean = total / world\n",
            "TS401": "dist.all_reduce(whole)\ntable[:, 1] = whole\n",
            "TS403": "async_op=True).wait()\n",
        },
    ),
    "saved": (SAVED, {"TS201": "h = h.clone()\ndist.all_reduce(h.detach())\n"}),
    "buffers": (BUFFERS, {"TS201": "self.scale.clone()"}),
    "loaded": (LOADED, {"TS410": 'bias": torch.zeros(2)})\nddp = DDP(net)\n'}),
    "sharded": (SHARDED, {"TS421": "fully_shard(net, mesh=mesh)\noptimizer = torch.optim"}),
}


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    """The process that has imported torch, once for all cases."""
    process = Warm(environment(), "torchsan.fix.ranks_child")
    yield process
    process.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_edit_is_proved_on_as_many_ranks(tmp_path: Path, warm: Warm, name: str) -> None:
    body, edits = CASES[name]
    path = tmp_path / "train.py"
    path.write_text(HEAD.lstrip("\n") + textwrap.dedent(body) + "dist.destroy_process_group()\n")
    outcome = Engine(Ranks(Launch(2, str(path), []), None, 60.0, warm=warm)).run()
    told = [(m.finding.code, m.verdict and m.verdict.words, m.dropped) for m in outcome.mends]
    assert outcome.mends, outcome.first.output
    assert {mend.finding.code for mend in outcome.mends} == set(edits), told
    assert outcome.clean, told
    assert all(mend.proved for mend in outcome.mends), told
    assert all("on 2 ranks equal the run in which" in mend.verdict.words for mend in outcome.mends), told
    [source] = outcome.changed.values()
    assert all(edit in source.text for edit in edits.values()), source.text


def test_what_a_launcher_is_asked_for_is_understood() -> None:
    words = ["torch.distributed.run", "--standalone", "--nproc-per-node", "3", "--master_port=1", "train.py", "-x", "1"]
    assert launched(words) == Launch(3, "train.py", ["-x", "1"])
    assert launched(["pdb", "train.py"]) is None


@pytest.mark.parametrize(
    "words", [["--nnodes=2", "train.py"], ["--nproc_per_node", "gpu", "train.py"], ["-m", "package"], ["--standalone"]]
)
def test_what_cannot_be_started_here_is_said(words: list[str]) -> None:
    with pytest.raises(UsageError):
        launched(["torch.distributed.run", *words])
