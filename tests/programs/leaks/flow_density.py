import math
from typing import Tuple

import torch
from torch import Tensor, nn


class InvertibleBatchNorm(nn.Module):
    """Batch normalisation as a flow layer, returns (z, log|det J|)."""

    def __init__(self, features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.log_gamma = nn.Parameter(torch.zeros(features))
        self.beta = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        if self.training:
            mean = x.mean(0)
            var = x.var(0) + self.eps
            self.running_mean = self.running_mean * (1 - self.momentum) + mean * self.momentum
            self.running_var = self.running_var * (1 - self.momentum) + var * self.momentum
        else:
            mean, var = self.running_mean, self.running_var
        z = (x - mean) / var.sqrt() * self.log_gamma.exp() + self.beta
        logdet = (self.log_gamma - 0.5 * var.log()).sum()
        return z, logdet.expand(x.shape[0])


class AffineCoupling(nn.Module):
    def __init__(self, features: int, hidden: int, flip: bool) -> None:
        super().__init__()
        self.flip = flip
        half = features // 2
        self.net = nn.Sequential(nn.Linear(half, hidden), nn.Tanh(), nn.Linear(hidden, 2 * half))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        a, b = x.chunk(2, dim=-1)
        if self.flip:
            a, b = b, a
        shift, log_s = self.net(a).chunk(2, dim=-1)
        log_s = torch.tanh(log_s)
        b = b * log_s.exp() + shift
        out = torch.cat([b, a] if self.flip else [a, b], dim=-1)
        return out, log_s.sum(-1)


class Flow(nn.Module):
    def __init__(self, features: int, blocks: int = 2, hidden: int = 16) -> None:
        super().__init__()
        layers = []
        for k in range(blocks):
            layers += [AffineCoupling(features, hidden, flip=bool(k % 2)), InvertibleBatchNorm(features)]
        self.layers = nn.ModuleList(layers)

    def log_prob(self, x: Tensor) -> Tensor:
        total = x.new_zeros(x.shape[0])
        for layer in self.layers:
            x, ld = layer(x)
            total = total + ld
        base = -0.5 * (x ** 2 + math.log(2 * math.pi)).sum(-1)
        return base + total


def sample_moons(n: int, gen: torch.Generator) -> Tensor:
    t = torch.rand(n, generator=gen) * math.pi
    side = (torch.rand(n, generator=gen) > 0.5).float()
    x = torch.cos(t) * (1 - 2 * side) + side
    y = torch.sin(t) * (1 - 2 * side) + 0.5 * side
    return torch.stack([x, y], -1) + 0.05 * torch.randn(n, 2, generator=gen)


if __name__ == "__main__":
    torch.manual_seed(7)
    gen = torch.Generator().manual_seed(7)
    flow = Flow(2)
    optim = torch.optim.Adam(flow.parameters(), lr=5e-3)
    for it in range(1, 31):
        batch = sample_moons(64, gen)
        nll = -flow.log_prob(batch).mean()
        optim.zero_grad()
        nll.backward()
        optim.step()
        if it % 10 == 0:
            print(f"iter {it:3d}  nll {nll.item():.4f}")
    flow.eval()
    with torch.no_grad():
        print("held out", round(-flow.log_prob(sample_moons(256, gen)).mean().item(), 4))
