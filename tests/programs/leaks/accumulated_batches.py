"""Sums the losses of several micro batches before one backward pass."""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    micro: int = 6
    group: int = 5
    steps: int = 100
    lr: float = 0.05


class Accumulator:
    def __init__(self, model, cfg):
        self.cfg = cfg
        self.optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9)
        self.pending = []
        self.history = []

    def add(self, loss):
        self.pending.append(loss)
        if len(self.pending) == self.cfg.group:
            self.flush()

    def flush(self):
        total = torch.stack(self.pending).mean()
        self.optimizer.zero_grad()
        total.backward()
        self.optimizer.step()
        self.history.append(total.item())
        self.pending.clear()


def micro_batches(cfg, seed):
    gen = torch.Generator().manual_seed(seed)
    for _ in range(cfg.steps):
        x = torch.randn(cfg.micro, 5, generator=gen)
        yield x, x[:, :1].abs() - x[:, 1:2]


def main():
    cfg = Config()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 1))
    accumulator = Accumulator(model, cfg)
    for x, y in micro_batches(cfg, 3):
        accumulator.add(F.mse_loss(model(x), y))
    print("updates", len(accumulator.history))
    print("losses", [round(v, 4) for v in accumulator.history[::4]])


if __name__ == "__main__":
    main()
