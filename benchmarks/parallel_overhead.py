"""What watching costs on two ranks: ratios of processor time, interleaved rounds in the same processes.

    python benchmarks/parallel_overhead.py [rounds] [width]

Each round makes the same steps plain, watched without a journal (nothing to compare ranks by), and watched with one, as
`torchsan run` does, each of them first as often as the others. `plain` against itself shows the noise of the machine.
What is counted is the thread that computes, where all of our work is done; threads of the backend are left out, which
wait for the other rank as long as the machine's load has it. Beside each ratio stand its quartiles, and what a step
takes more in milliseconds, which hangs on the number of collectives and layers, not on their size.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import chain

import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn

from torchsan.observe.recorder import Recorder
from torchsan.processes.journal import Journal

# The first steps of a run are looked at closely; what is measured is the rest.
RANKS, WARM, STEPS = 2, 33, 12
WIDTH = int(sys.argv[2]) if len(sys.argv) > 2 else 256
Step = Callable[[], None]


def _model() -> nn.Module:
    torch.manual_seed(0)
    layers = [(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(inplace=True)) for _ in range(4)]
    return nn.Sequential(*chain.from_iterable(layers), nn.Linear(WIDTH, 10))


def _step(net: nn.Module, forward: Callable[[torch.Tensor], torch.Tensor], average: Step | None = None) -> Step:
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    batch = torch.randn(64, WIDTH)

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

    net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
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
    start = time.thread_time()
    for _ in range(STEPS):
        step()
    taken = time.thread_time() - start
    if recorder is not None:
        recorder.stop()
    return taken


def _said(times: dict[str, list[float]]) -> str:
    plain = times["plain"]
    said = f"plain {1000 * statistics.median(plain) / STEPS:.1f} ms a step"
    for way, taken in times.items():
        if way != "plain":
            ratios = [t / p for t, p in zip(taken, plain, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
            more = 1000 * statistics.median(t - p for t, p in zip(taken, plain, strict=True)) / STEPS
            said += f"  {way} {middle:.2f} ({low:.2f}-{high:.2f}, {more:+.2f} ms)"
    return said


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
            order = list(ways.items())
            for way, (kept, watched) in order[turn % len(order) :] + order[: turn % len(order)]:
                taken = _measure(step, kept, watched)
                if turn:  # the first round warms up
                    times[way].append(taken)
        if number == 0:
            print(f"{name:<18}{_said(times)}", flush=True)
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
