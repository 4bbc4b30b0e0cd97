"""Pretraining step of a small transformer-like stack with sharded parameters."""
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Stack(nn.Module):
    def __init__(self, vocab: int = 40, dim: int = 16, depth: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        h = self.embed(tokens)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


@torch.no_grad()
def limit_norm(model: nn.Module, largest: float) -> float:
    local = [p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in model.parameters()]
    norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in local]))
    scale = torch.clamp(largest / (norm + 1e-6), max=1.0)
    for g in local:
        g.mul_(scale)
    return norm.item()


def shard(model: Stack) -> Stack:
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    rank = dist.get_rank()
    torch.manual_seed(25)
    model = shard(Stack())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    gen = torch.Generator().manual_seed(250 + rank)
    for step in range(2):
        tokens = torch.randint(0, 40, (8, 12), generator=gen)
        target = (tokens * 3 + 1) % 10
        loss = F.cross_entropy(model(tokens).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = limit_norm(model, 0.5)
        optimizer.step()
        if step % 4 == 3:
            print(f"rank {rank} step {step + 1} loss {loss.item():.4f} norm {norm:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
