"""Coupling flow on two moons with a round-trip report."""
import math

import torch
from torch import nn


class Coupling(nn.Module):
    def __init__(self, dim, hidden, swap):
        super().__init__()
        self.swap = swap
        half = dim // 2
        self.net = nn.Sequential(nn.Linear(half, hidden), nn.Tanh(), nn.Linear(hidden, 2 * half))

    def parts(self, x):
        a, b = x.chunk(2, 1)
        return (b, a) if self.swap else (a, b)

    def coefficients(self, kept):
        log_scale, shift = self.net(kept).chunk(2, 1)
        return torch.tanh(log_scale), shift

    def forward(self, x):
        kept, moved = self.parts(x)
        log_scale, shift = self.coefficients(kept)
        moved = moved * log_scale.exp() + shift
        out = (moved, kept) if self.swap else (kept, moved)
        return torch.cat(out, 1), log_scale.sum(1)

    def inverse(self, y):
        kept, moved = self.parts(y)
        log_scale, shift = self.coefficients(kept)
        moved.sub_(shift).mul_(torch.exp(-log_scale))
        return y


class Flow(nn.Module):
    def __init__(self, layers=4):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(2, 24, i % 2 == 1) for i in range(layers))

    def log_prob(self, x):
        total = 0.0
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return total - 0.5 * x.pow(2).sum(1) - math.log(2 * math.pi)

    def encode(self, x):
        for layer in self.layers:
            x, _ = layer(x)
        return x

    @torch.no_grad()
    def decode(self, z):
        for layer in reversed(self.layers):
            z = layer.inverse(z)
        return z


def moons(n, gen):
    t = math.pi * torch.rand(n, generator=gen)
    side = (torch.arange(n) % 2).float()
    x = torch.stack([t.cos() + side, (1 - 2 * side) * t.sin() + 0.4 * side], 1)
    return x + 0.05 * torch.randn(n, 2, generator=gen)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=0.01)
    for step in range(80):
        loss = -flow.log_prob(moons(128, gen)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} nll {loss.item():.4f}")
    x = moons(200, gen)
    z = flow.encode(x).detach()
    back = flow.decode(z)
    print("round trip exact", torch.allclose(back, x, atol=1e-4))
    print("latent mean", [round(v, 3) for v in z.mean(0).tolist()], "std", [round(v, 3) for v in z.std(0).tolist()])


if __name__ == "__main__":
    main()
