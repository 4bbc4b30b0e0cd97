"""Density model whose flat gradient is reduced while the next batch is being prepared."""
import math
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


class Coupling(nn.Module):
    def __init__(self, flip: bool) -> None:
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, x):
        a, b = x.unbind(1)
        a, b = (b, a) if self.flip else (a, b)
        shift, log_scale = self.net(a[:, None]).unbind(1)
        b = (b - shift) * torch.exp(-log_scale)
        pair = (b, a) if self.flip else (a, b)
        return torch.stack(pair, 1), -log_scale


class Flow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Coupling(bool(i % 2)) for i in range(4))

    def nll(self, x):
        logdet = torch.zeros(len(x))
        for layer in self.layers:
            x, ld = layer(x)
            logdet = logdet + ld
        return (0.5 * x.square().sum(1) + math.log(2 * math.pi) - logdet).mean()


class FlatReducer:
    def __init__(self, params) -> None:
        self.params = list(params)
        self.flat = torch.zeros(sum(p.numel() for p in self.params))

    def start(self):
        torch.cat([p.grad.flatten() for p in self.params], out=self.flat)
        return dist.all_reduce(self.flat, async_op=True)

    def finish(self, work) -> None:
        work.wait()
        self.flat /= dist.get_world_size()
        for p, piece in zip(self.params, self.flat.split([p.numel() for p in self.params])):
            p.grad.copy_(piece.view_as(p))


def moons(gen: torch.Generator, count: int = 64) -> torch.Tensor:
    angle = torch.rand(count, generator=gen) * math.pi
    xy = torch.stack([angle.cos(), angle.sin()], 1)
    return xy.add_(0.1 * torch.randn(count, 2, generator=gen))


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    rank = dist.get_rank()
    torch.manual_seed(61)
    flow, gen = Flow(), torch.Generator().manual_seed(610 + rank)
    reducer = FlatReducer(flow.parameters())
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
    x = moons(gen)
    for step in range(5):
        optimizer.zero_grad()
        loss = flow.nll(x)
        loss.backward()
        work = reducer.start()
        x = moons(gen)
        reducer.finish(work)
        optimizer.step()
        if rank == 0 and step % 8 == 0:
            print(f"step {step} nll {loss.item():.4f}")
    print(f"rank {rank} norm {reducer.flat.norm().item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
