"""Evaluate a detector head on shards; totals per class are summed over ranks."""
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

NAMES = ["car", "cyclist", "person", "sign"]


class Meter:
    """Counts by class name; a class gets its entry when it is first met."""

    def __init__(self) -> None:
        self.hits: dict[str, torch.Tensor] = {}

    def update(self, predicted: torch.Tensor, truth: torch.Tensor) -> None:
        for p, t in zip(predicted.tolist(), truth.tolist()):
            entry = self.hits.setdefault(NAMES[t], torch.zeros(2, dtype=torch.long))
            entry[0] += p == t
            entry[1] += 1

    def synchronize(self) -> None:
        for counts in self.hits.values():
            dist.all_reduce(counts)

    def table(self) -> dict[str, float]:
        return {name: (c[0] / c[1]).item() for name, c in sorted(self.hits.items())}


class Crops:
    def __init__(self, rank: int, count: int) -> None:
        gen = torch.Generator().manual_seed(900 + rank)
        odds = torch.tensor([[6.0, 1, 2, 1], [1.0, 2, 1, 6]])[rank]
        self.y = torch.multinomial(odds, count, replacement=True, generator=gen)
        spread = torch.tensor([0.3, 0.6, 1.0, 1.8])[self.y, None]
        self.x = F.one_hot(self.y, 12) * 2.0 + spread * torch.randn(count, 12, generator=gen)

    def batches(self, size: int):
        return zip(self.x.split(size), self.y.split(size))


def train_head(head: nn.Module) -> None:
    gen = torch.Generator().manual_seed(33)
    optimizer = torch.optim.Adam(head.parameters(), lr=5e-2)
    for _ in range(30):
        y = torch.randint(0, 4, (64,), generator=gen)
        x = F.one_hot(y, 12) * 2.0 + 0.8 * torch.randn(64, 12, generator=gen)
        loss = F.cross_entropy(head(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    rank = dist.get_rank()
    torch.manual_seed(32)
    head = nn.Linear(12, 4)
    train_head(head)
    meter = Meter()
    with torch.no_grad():
        for x, y in Crops(rank, 200).batches(50):
            meter.update(head(x).argmax(1), y)
    meter.synchronize()
    for name, value in meter.table().items():
        print(f"rank {rank} {name:8s} {value:.3f} of {int(meter.hits[name][1])}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
