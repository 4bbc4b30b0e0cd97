"""Right programs on two ranks stay right and silent, and what goes through collectives keeps its gradients."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from ranks import run_ranks

HEAD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
"""

HISTORY = """
x = torch.ones(4, requires_grad=True) * (rank + 1)
z = x.exp()
pieces = [torch.empty(4) for _ in range(world)]
dist.all_gather(pieces, z)
pieces[rank] = z
mean = z * 1
dist.all_reduce(mean, op=dist.ReduceOp.AVG)
got = [torch.empty(4) for _ in range(world)] if rank == 0 else None
dist.gather(z, got, dst=0)
swapped = [torch.empty(4) for _ in range(world)]
dist.all_to_all(swapped, [z, z * 2])
reduced = z * 3
with dist._coalescing_manager():
    dist.all_reduce(reduced)
torch.cat(pieces).sum().backward()
print("done")
"""

UNCHANGED = """
w = torch.ones(3, requires_grad=True)
h = w.exp()
dist.broadcast(h.detach(), 0)  # the same values on both ranks
dist.all_reduce(h.detach(), op=dist.ReduceOp.MAX)
source = (w * 2).sigmoid()
alone = (w * 3).sigmoid()
groups = [dist.new_group([0]), dist.new_group([1])]
dist.all_reduce(alone.detach(), group=groups[rank])
if rank == 0:
    spare = source.detach()
else:
    spare = torch.zeros(3)
dist.broadcast(spare, 0)
(h.sum() + source.sum() + alone.sum()).backward()
print(w.grad.tolist())
"""

COMPILED = """
def total(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1


compiled = torch.compile(total, fullgraph=True, backend="eager")
print(compiled(torch.full((3,), float(rank))).tolist())
"""

# The nodes of a remote forward are made in threads of C++ that no Python called.
RPC = """
import os
import torch.distributed.autograd as remote
import torch.distributed.rpc as rpc

weight = torch.full((3,), 2.0, requires_grad=True)


def forward(x):
    return (weight * weight * x).exp()


where = f"tcp://127.0.0.1:{int(os.environ['MASTER_PORT']) + 1}"
options = rpc.TensorPipeRpcBackendOptions(init_method=where, _transports=["uv"])
rpc.init_rpc(f"w{rank}", rank=rank, world_size=world, rpc_backend_options=options)
if rank == 1:
    for _ in range(3):
        with remote.context() as context:
            x = torch.ones(3, requires_grad=True)
            loss = rpc.rpc_sync("w0", forward, args=(x,)).sum() + (x * x).sum()
            remote.backward(context, [loss])
            print(remote.get_gradients(context)[x].tolist())
rpc.shutdown()
"""

CHANGED = """
w = torch.full((3,), float(rank), requires_grad=True)
h = w.exp()
dist.all_reduce(h.detach())  # write
h.sum().backward()
"""

LOUD = """
w = torch.full((3,), float(rank), requires_grad=True)
h = w.exp()
dist.all_reduce(h.detach(), op=dist.ReduceOp.AVG)  # write
try:
    h.sum().backward()
except RuntimeError:
    print("refused")
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


ddp = torch.nn.parallel.DistributedDataParallel(Scaled())
loss = ddp(torch.randn(4, 3))
loss = loss + ddp(torch.randn(4, 3))  # write
loss.backward()
"""


def program(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "program.py"
    path.write_text(HEAD.lstrip("\n") + textwrap.dedent(body) + "dist.destroy_process_group()\n")
    return path


def marked(path: Path, mark: str = "# write") -> int:
    return next(n for n, line in enumerate(path.read_text().splitlines(), 1) if line.endswith(mark))


@pytest.mark.parametrize("body", [HISTORY, UNCHANGED, COMPILED, RPC], ids=["history", "unchanged", "compiled", "rpc"])
def test_a_right_program_is_as_it_was_and_silent(tmp_path, body):
    path = program(tmp_path, body)
    plain, watched = run_ranks(path, watched=False), run_ranks(path)
    assert plain.statuses == [0, 0], plain.outputs
    assert watched.statuses == [0, 0], watched.outputs
    assert watched.outputs == plain.outputs
    assert watched.codes == []
    assert not [note for note in watched.report.notes if "internal error" in note]


@pytest.mark.parametrize(("body", "code"), [(CHANGED, "TS201"), (LOUD, "TS101")], ids=["silent", "loud"])
def test_a_saved_value_that_a_collective_changes_is_told_at_its_line(tmp_path, body, code):
    path = program(tmp_path, body)
    ranks = run_ranks(path)
    assert ranks.statuses == [0, 0], ranks.outputs
    assert ranks.codes == [code]
    assert ranks.lines(code) == {marked(path)}
    assert ranks.report.findings[0].ranks == (0, 1)


def test_ddp_that_overwrites_a_saved_buffer_is_told_where_it_happens(tmp_path):
    path = program(tmp_path, BUFFERS)
    ranks = run_ranks(path)
    assert ranks.codes == ["TS201"]
    assert ranks.lines("TS201") == {marked(path)}
    assert ranks.report.findings[0].ranks == (1,)  # rank 0's own buffers are the ones that are sent
