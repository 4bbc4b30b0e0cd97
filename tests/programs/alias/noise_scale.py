"""Estimates the gradient noise scale while accumulating micro batches."""
import torch
import torch.nn.functional as F
from torch import nn


class NoiseScale:
    """Compares the gradient of one micro batch with that of the whole batch."""

    def __init__(self, model, small, big):
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.small, self.big = small, big
        self.first = None
        self.records = []

    def after_first(self):
        self.first = [p.grad for p in self.params]

    def after_all(self, micro_batches):
        small = sum(g.pow(2).sum() for g in self.first).item()
        big = sum((p.grad / micro_batches).pow(2).sum() for p in self.params).item()
        g2 = (self.big * big - self.small * small) / (self.big - self.small)
        noise = (small - big) / (1 / self.small - 1 / self.big)
        self.records.append((g2, noise))

    def estimate(self):
        g2 = sum(r[0] for r in self.records) / len(self.records)
        noise = sum(r[1] for r in self.records) / len(self.records)
        return g2, noise


class Loader:
    def __init__(self, micro, seed):
        self.micro = micro
        self.gen = torch.Generator().manual_seed(seed)
        self.truth = torch.randn(8, 1, generator=self.gen)

    def __call__(self):
        x = torch.randn(self.micro, 8, generator=self.gen)
        return x, x @ self.truth + torch.randn(self.micro, 1, generator=self.gen)


def train(model, loader, meter, steps, micro_batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(steps):
        optimizer.zero_grad()
        for i in range(micro_batches):
            x, y = loader()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            if i == 0:
                meter.after_first()
        meter.after_all(micro_batches)
        for p in model.parameters():
            p.grad /= micro_batches
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")


def main():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    meter = NoiseScale(model, small=8, big=32)
    train(model, Loader(8, 1), meter, steps=40, micro_batches=4)
    g2, noise = meter.estimate()
    print(f"signal {g2:.4f} noise {noise:.4f} scale {noise / g2:.4f}")


if __name__ == "__main__":
    main()
