"""What watching costs: plain eager, torchsan, anomaly mode and allow_mutation_on_saved_tensors in one run.

Every round runs each variant once, in turn, so that whatever else the machine does hits all alike. A run of a variant
is a block of steps that takes plain eager about `--block` seconds of the processor; the steps before it, in which lines
are met for the first time, are left out. Printed are medians of processor time (one thread) and, behind the stroke, of
the time on the wall, as ratios to plain eager in the same round; the second eager column is eager against itself, the
noise to read the rest by. On a busy machine only the processor's time means anything, and even that only in part: who
is interrupted more often finds its caches cold. `benchmarks/instructions.py` counts instead.

The first three workloads are ordinary training; the others write as often as a program can. torchsan is measured twice,
with its native part (where that is built) and without.

    python benchmarks/overhead.py [--rounds N] [--block SECONDS] [--only WORKLOAD] [--brief]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

import torchsan
from torchsan.observe import native
from torchsan.observe.holders import schedule


class Basic(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skip = x if self.down is None else self.down(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += skip
        return self.relu(out)


class ResNet18(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        self.body = nn.Sequential(*[nn.Sequential(Basic(i, o, s), Basic(o, o, 1)) for i, o, s in widths])
        self.head = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.stem(x)).mean(dim=(2, 3)))


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.n1, self.n2, self.attention = nn.LayerNorm(dim), nn.LayerNorm(dim), Attention(dim, 4)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 512, dim: int = 256, layers: int = 4, length: int = 128) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, dim), nn.Parameter(torch.zeros(length, dim))
        self.layers = nn.Sequential(*[Layer(dim) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(self.tokens(ids) + self.positions)))


def resnet() -> Callable[[], None]:
    net, x, y = ResNet18(), torch.randn(8, 3, 112, 112), torch.randint(10, (8,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    return step


def gpt() -> Callable[[], None]:
    net, ids = GPT(), torch.randint(512, (4, 128))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(ids).flatten(0, 1), ids.flatten()).backward()
        optimizer.step()

    return step


def loop() -> Callable[[], None]:
    """200 steps of a recurrence on [32, 64], five tiny ops each: the worst case for a recorder."""
    weight = torch.nn.Parameter(torch.randn(64, 64) * 0.1)
    gate = torch.nn.Parameter(torch.randn(64))
    inputs = torch.randn(32, 64)
    optimizer = torch.optim.SGD([weight, gate], lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        h = torch.zeros(32, 64)
        for _ in range(200):
            h = torch.tanh(h @ weight + inputs) * torch.sigmoid(gate) + 0.1 * h
        h.pow(2).mean().backward()
        optimizer.step()

    return step


def indexed() -> Callable[[], None]:
    """A table filled row by row."""
    table, row = torch.zeros(64, 32), torch.randn(32)

    def step() -> None:
        for i in range(64):
            table[i] = row

    return step


def inplace() -> Callable[[], None]:
    """One tensor of 4,096 numbers added to, over and over."""
    total, more = torch.zeros(64, 64), torch.randn(64, 64)

    def step() -> None:
        for _ in range(200):
            total.add_(more)

    return step


def data() -> Callable[[], None]:
    """The same behind autograd's back."""
    weight = torch.nn.Parameter(torch.zeros(64, 64))

    def step() -> None:
        for _ in range(200):
            weight.data.add_(1)

    return step


def sgd() -> Callable[[], None]:
    """Plain gradient descent, written by hand, on 20 parameters."""
    layers = [nn.Linear(32, 32) for _ in range(10)]
    net, x = nn.Sequential(*layers), torch.randn(16, 32)

    def step() -> None:
        net(x).pow(2).mean().backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.01 * p.grad
                p.grad.zero_()

    return step


class InplaceCell(nn.Module):
    """A gated cell that reuses the memory of its gates."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.update, self.new, self.out = (nn.Linear(2 * size, size) for _ in range(3))

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both = torch.cat([x, h], -1)
        update, new, out = self.update(both).sigmoid_(), self.new(both).tanh_(), self.out(both).sigmoid_()
        fresh = c * update
        fresh += new * (1 - update)
        return out * torch.tanh(fresh), fresh


def rnn() -> Callable[[], None]:
    cell, inputs = InplaceCell(32), torch.randn(50, 16, 32)
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        h = c = torch.zeros(16, 32)
        total = torch.zeros(16, 32)
        for x in inputs:
            h, c = cell(x, h, c)
            total += h
        total.pow(2).mean().backward()
        optimizer.step()

    return step


def adam() -> Callable[[], None]:
    """Torch's Adam, one tensor at a time, on 200 small parameters."""
    parameters = [nn.Parameter(torch.randn(8)) for _ in range(200)]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, foreach=False)
    for p in parameters:
        p.grad = torch.randn(8)
    return lambda: optimizer.step()


def steps() -> Callable[[], None]:
    """Nothing but passes and steps of an optimizer of one small parameter: what they cost by themselves."""
    parameter = nn.Parameter(torch.randn(8))
    optimizer = torch.optim.SGD([parameter], lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        parameter.sum().backward()
        optimizer.step()

    return step


WORKLOADS: dict[str, Callable[[], Callable[[], None]]] = {
    "resnet": resnet,
    "gpt": gpt,
    "loop": loop,
    "indexed": indexed,
    "inplace": inplace,
    "data": data,
    "sgd": sgd,
    "rnn": rnn,
    "adam": adam,
    "steps": steps,
}
# So many steps, or so many seconds of them, come before those that count.
WARM_STEPS, WARM_SECONDS = 80, 0.3


@contextlib.contextmanager
def anomaly():
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        yield


@contextlib.contextmanager
def without_native():
    """Watch with the sensor in Python, as where no compiler is."""
    before = os.environ.get("TORCHSAN_NATIVE")
    os.environ["TORCHSAN_NATIVE"] = "0"
    try:
        with torchsan.watch():
            yield
    finally:
        os.environ.pop("TORCHSAN_NATIVE")
        if before is not None:
            os.environ["TORCHSAN_NATIVE"] = before


VARIANTS: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
    "eager": contextlib.nullcontext,
    "eager again": contextlib.nullcontext,
    "torchsan.watch": torchsan.watch,
    "watch, Python": without_native,
    "torchsan.heal": torchsan.heal,
    "detect_anomaly": anomaly,
    "allow_mutation": torch.autograd.graph.allow_mutation_on_saved_tensors,
}


def seconds_of(step: Callable[[], None], steps: int) -> tuple[float, float]:
    """Of the processor and on the wall."""
    start, wall = time.process_time(), time.perf_counter()
    for _ in range(steps):
        step()
    return time.process_time() - start, time.perf_counter() - wall


def measure(make: Callable[[], Callable[[], None]], block: float, rounds: int) -> dict[str, tuple[float, float]]:
    """Of each variant the ratios of processor time and of time on the wall."""
    step = make()
    step()
    one = min(seconds_of(step, 1)[0] for _ in range(5))
    steps, warm = max(1, round(block / one)), min(WARM_STEPS, max(2, round(WARM_SECONDS / one)))
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    for round_number in range(rounds + 1):
        # Each round begins with another variant: whoever comes first, or after an expensive one, has it harder.
        order = list(VARIANTS.items())
        turn = round_number % len(order)
        for name, context in order[turn:] + order[:turn]:
            gc.collect()
            with context():
                seconds_of(step, warm)
                elapsed = seconds_of(step, steps)
            if round_number:  # the first round warms up
                seconds[name].append(elapsed)
    ratios = {}
    for name, times in seconds.items():
        pairs = list(zip(times, seconds["eager"], strict=True))
        ratios[name] = (
            statistics.median(mine[0] / eager[0] for mine, eager in pairs),
            statistics.median(mine[1] / eager[1] for mine, eager in pairs),
        )
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--block", type=float, default=0.1, metavar="SECONDS")
    parser.add_argument("--only", choices=WORKLOADS)
    parser.add_argument("--brief", action="store_true", help="only eager and torchsan.watch")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    # What is measured is a run that has gone on for a while: the larger share of its first seconds is behind it.
    schedule._share.started -= schedule.EARLY
    if args.brief:
        for name in ("torchsan.heal", "detect_anomaly", "allow_mutation"):
            del VARIANTS[name]
    print(f"native part: {native.status()}")
    print(f"{'':8}" + "".join(f"{name:>16}" for name in VARIANTS))
    for name, make in WORKLOADS.items():
        if args.only in (None, name):
            ratios = measure(make, args.block, args.rounds)
            print(f"{name:8}" + "".join(f"{ratios[v][0]:>9.2f} /{ratios[v][1]:5.2f}" for v in VARIANTS), flush=True)


if __name__ == "__main__":
    main()
