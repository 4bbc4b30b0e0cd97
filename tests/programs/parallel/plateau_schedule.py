"""Graph-free node classification with a step size that follows the global loss."""
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Papers:
    def __init__(self, rank: int, nodes: int = 120) -> None:
        gen = torch.Generator().manual_seed(800 + rank)
        self.y = torch.randint(0, 3, (nodes,), generator=gen)
        centre = torch.randn(3, 12, generator=torch.Generator().manual_seed(8))
        noise = 1.0 + 0.8 * rank
        x = centre[self.y] + noise * torch.randn(nodes, 12, generator=gen)
        near = (self.y[:, None] == self.y[None]).float() * 0.1 + 0.02
        adj = (torch.rand(nodes, nodes, generator=gen) < near).float()
        self.x = torch.cat([x, adj @ x / adj.sum(1, keepdim=True).clamp(min=1)], 1)


class Speed:
    """Multiplies the step size by 0.5 when the loss has not improved by `margin`."""

    def __init__(self, optimizer, margin: float) -> None:
        self.optimizer, self.margin, self.best = optimizer, margin, float("inf")

    def feed(self, loss: float) -> float:
        group = self.optimizer.param_groups[0]
        if loss > self.best - self.margin:
            group["lr"] *= 0.5
        self.best = min(self.best, loss)
        return group["lr"]


def overall(loss: torch.Tensor) -> float:
    total = loss.detach().clone()
    dist.reduce(total, dst=0)
    return total.item() / dist.get_world_size()


def main() -> DDP:
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    rank = dist.get_rank()
    torch.manual_seed(81)
    data = Papers(rank)
    ddp = DDP(nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 3)))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5, momentum=0.9)
    speed = Speed(optimizer, margin=0.03)
    for epoch in range(14):
        loss = F.cross_entropy(ddp(data.x), data.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lr = speed.feed(overall(loss))
        if epoch % 4 == 1:
            print(f"rank {rank} epoch {epoch} loss {loss.item():.4f} lr {lr:.5f}")
    norm = nn.utils.parameters_to_vector(ddp.parameters()).norm().item()
    print(f"rank {rank} weights {norm:.5f}")
    dist.destroy_process_group()
    return ddp  # gloo may hang when it is freed right after its last collective


if __name__ == "__main__":
    kept = main()
