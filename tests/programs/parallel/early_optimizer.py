"""Train a small image classifier with sharded parameters, built from a config."""
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F


@dataclass
class Settings:
    classes: int = 4
    width: int = 32
    steps: int = 16
    lr: float = 0.05
    weight_decay: float = 1e-4


def build(cfg: Settings):
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, cfg.width), nn.ReLU(),
        nn.Linear(cfg.width, cfg.width), nn.ReLU(), nn.Linear(cfg.width, cfg.classes),
    )
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.SGD(
        [{"params": decay, "weight_decay": cfg.weight_decay}, {"params": plain}],
        lr=cfg.lr, momentum=0.9,
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.steps)
    return model, optimizer, schedule


def parallelize(model: nn.Sequential) -> nn.Module:
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    return fully_shard(model)


class Glyphs:
    def __init__(self, rank: int, cfg: Settings) -> None:
        self.gen = torch.Generator().manual_seed(500 + rank)
        self.shapes = torch.randn(cfg.classes, 8, 8, generator=torch.Generator().manual_seed(5))

    def draw(self, count: int = 32):
        y = torch.randint(0, len(self.shapes), (count,), generator=self.gen)
        return self.shapes[y] + torch.randn(count, 8, 8, generator=self.gen), y


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    torch.manual_seed(51)
    cfg = Settings()
    model, optimizer, schedule = build(cfg)
    model = parallelize(model)
    data = Glyphs(dist.get_rank(), cfg)
    for step in range(cfg.steps):
        x, y = data.draw()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        value = loss.detach().clone()
        dist.all_reduce(value)
        if dist.get_rank() == 0 and step % 5 == 0:
            print(f"step {step} loss {value.item() / 2:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
