"""What watching costs on two ranks: ratios of processor time, interleaved rounds in the same processes.

    python benchmarks/parallel_overhead.py [rounds]

Each round makes the same steps plain, watched without a journal (nothing to compare ranks by), and watched with one, as
`torchsan run` does. `plain` against itself shows the noise of the machine.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn

from torchsan.observe.recorder import Recorder
from torchsan.processes.journal import Journal

# The first steps of a run are looked at closely; what is measured is the rest.
RANKS, WARM, STEPS = 2, 33, 12
Step = Callable[[], None]


def _model() -> nn.Module:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.BatchNorm1d(256), nn.ReLU(inplace=True))]
    return nn.Sequential(*layers, nn.Linear(256, 10))


def _step(net: nn.Module, forward: Callable[[torch.Tensor], torch.Tensor], average: Step | None = None) -> Step:
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    batch = torch.randn(64, 256)

    def step() -> None:
        optimizer.zero_grad()
        forward(batch).square().mean().backward()
        if average is not None:
            average()
        optimizer.step()

    return step


def ddp() -> Step:
    net = _model()
    return _step(net, nn.parallel.DistributedDataParallel(net))


def by_hand() -> Step:
    net = _model()

    def average() -> None:
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)

    return _step(net, net, average)


def fsdp() -> Step:
    from torch.distributed.fsdp import fully_shard

    net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
    mesh = dist.init_device_mesh("cpu", (RANKS,))
    for layer in net:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return _step(net, net)


def _measure(step: Step, journal: Journal | None, watched: bool) -> float:
    recorder = Recorder() if watched else None
    if recorder is not None:
        recorder.journal = journal
        recorder.start()
    for _ in range(WARM if watched else 1):
        step()
    dist.barrier()
    start = time.process_time()
    for _ in range(STEPS):
        step()
    taken = time.process_time() - start
    if recorder is not None:
        recorder.stop()
    return taken


def rank(number: int, port: int, folder: str, rounds: int) -> None:
    os.environ.update(RANK=str(number), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    journal = Journal(folder, "rank")
    for name, make in (("DDP", ddp), ("averaging by hand", by_hand), ("FSDP2", fsdp)):
        step = make()
        ways = {
            "plain": (None, False),
            "plain again": (None, False),
            "watched": (None, True),
            "compared": (journal, True),
        }
        times: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(rounds + 1):
            for way, (kept, watched) in ways.items():
                taken = _measure(step, kept, watched)
                if turn:  # the first round warms up
                    times[way].append(taken)
        ratios = {
            way: statistics.median(t / p for t, p in zip(times[way], times["plain"], strict=True)) for way in times
        }
        if number == 0:
            said = "  ".join(f"{way} {ratio:.2f}" for way, ratio in ratios.items() if way != "plain")
            print(f"{name:<18} {said}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for number in range(RANKS):
            pid = os.fork()
            if pid == 0:
                rank(number, port, folder, rounds)
                os._exit(0)
            children.append(pid)
        for pid in children:
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
