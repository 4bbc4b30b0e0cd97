"""What watching a compiled program costs: processor time per step with and without the recorder, as a ratio.

    python benchmarks/compiled_overhead.py [--backend inductor] [--rounds 5] [--steps 100]

Each turn compiles the program anew, makes some steps that do not count, and then takes the mean of `--steps` steps: all
that watching does in them counts, rare looks as well. Watched turns and two kinds of plain ones alternate. The ratio is
the median of those of each round; the last column is the same ratio of plain against plain: what the machine makes up.
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


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(width), Block(width)
        self.given, self.back = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.given(self.norm(x)).unflatten(-1, (3, -1, 32)).transpose(1, 3)
        q, k, v = heads.unbind(2)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        found: torch.Tensor = self.mlp(x + self.back(mixed.transpose(1, 2).flatten(2)))
        return found


def gpt(backend: str) -> Callable[[], None]:
    """Four layers, trained as people do: AdamW, gradients clipped, each loss told."""
    width, words, length = 128, 256, 64
    model = nn.Sequential(
        nn.Embedding(words, width), *(Attention(width) for _ in range(4)), nn.LayerNorm(width), nn.Linear(width, words)
    )
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    losses: list[float] = []

    def step() -> None:
        text = torch.randint(words, (4, length + 1))
        logits = compiled(text[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())

    return step


def step_of(model: nn.Module, backend: str, *shape: int) -> Callable[[], None]:
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(*shape)

    def step() -> None:
        optimizer.zero_grad()
        compiled(batch).pow(2).mean().backward()
        optimizer.step()

    return step


# Steps that compile, and those in which lines are new.
WARM = 20

WORKLOADS = {
    "mlp blocks (wide)": lambda backend: step_of(nn.Sequential(*(Block(256) for _ in range(4))), backend, 64, 256),
    "tiny, with writes and a break": lambda backend: step_of(Counting(), backend, 16, 32),
    "GPT, 4 layers": gpt,
}


def measure(name: str, backend: str, rounds: int, steps: int) -> tuple[float, float, float, float]:
    """Seconds per step watched and plain, their ratio, and the ratio of plain against itself."""
    times: dict[str, list[float]] = {"plain": [], "watched": [], "again": []}
    for number in range(rounds):
        order = ["plain", "watched", "again"]
        for kind in order if number % 2 else reversed(order):
            times[kind].append(_turn(name, backend, steps, watched=kind == "watched"))
    plain = times["plain"]
    ratios = [w / p for w, p in zip(times["watched"], plain, strict=True)]
    noise = [a / p for a, p in zip(times["again"], plain, strict=True)]
    return (
        statistics.median(times["watched"]), statistics.median(plain),
        statistics.median(ratios), statistics.median(noise),
    )  # fmt: skip


def _turn(name: str, backend: str, steps: int, *, watched: bool) -> float:
    # Compiled anew each time: code that was compiled unwatched would serve the watched program, too.
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torchsan.watch() if watched else contextlib.nullcontext():
        step = WORKLOADS[name](backend)
        for _ in range(WARM):
            step()
        start = time.process_time()
        for _ in range(steps):
            step()
        return (time.process_time() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'program':32} {'watched':>10} {'plain':>10} {'ratio':>7} {'plain/plain':>12}")
    for name in WORKLOADS:
        watched, plain, ratio, noise = measure(name, args.backend, args.rounds, args.steps)
        print(f"{name:32} {watched * 1e3:8.3f}ms {plain * 1e3:8.3f}ms {ratio:7.3f} {noise:12.3f}")


if __name__ == "__main__":
    main()
