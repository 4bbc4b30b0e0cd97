"""What watching a compiled program costs: processor time per step with and without the recorder, as a ratio.

    python benchmarks/compiled_overhead.py [--backend inductor] [--rounds 5]

Everything is compiled before the first step that counts. Watched and plain take turns; each turn compiles the program
anew and keeps its best ten steps, and the ratio is that of the medians over the turns.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import torchsan


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Counting(nn.Module):
    """Small, with a buffer that every call rewrites and a graph break: the dearest kind for a watcher."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(32, 32)
        self.register_buffer("mean", torch.zeros(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.1)
        h = self.lin(x)
        torch._dynamo.graph_break()
        return torch.tanh(h - self.mean)


def step_of(model: nn.Module, backend: str, *shape: int) -> Callable[[], None]:
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(*shape)

    def step() -> None:
        optimizer.zero_grad()
        compiled(batch).pow(2).mean().backward()
        optimizer.step()

    return step


WORKLOADS = {
    "mlp blocks (wide)": lambda backend: step_of(nn.Sequential(*(Block(256) for _ in range(4))), backend, 64, 256),
    "tiny, with writes and a break": lambda backend: step_of(Counting(), backend, 16, 32),
}


def measure(name: str, backend: str, rounds: int) -> tuple[float, float]:
    times: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * rounds):
        watched = bool(number % 2)
        # Compiled anew each time: code that was compiled unwatched would serve the watched program, too.
        torch._dynamo.reset()
        torch.manual_seed(0)
        with torchsan.watch() if watched else contextlib.nullcontext():
            step = WORKLOADS[name](backend)
            for _ in range(5):
                step()
            times[watched].append(min(_seconds(step) for _ in range(5)))
    return statistics.median(times[True]), statistics.median(times[False])


def _seconds(step: Callable[[], None], repeat: int = 10) -> float:
    step()
    start = time.process_time()
    for _ in range(repeat):
        step()
    return (time.process_time() - start) / repeat


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(f"{'program':32} {'watched':>10} {'plain':>10} {'ratio':>7}")
    for name in WORKLOADS:
        watched, plain = measure(name, args.backend, args.rounds)
        print(f"{name:32} {watched * 1e3:8.3f}ms {plain * 1e3:8.3f}ms {watched / plain:7.3f}")


if __name__ == "__main__":
    main()
