"""Language model step with hand-made communication that starts from gradient hooks."""
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


class BagModel(nn.Module):
    def __init__(self, vocab: int = 12000, dim: int = 48) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, 50)

    def forward(self, tokens):
        return self.out(torch.tanh(self.mix(self.embed(tokens).mean(1))))


class Communicator:
    """Reduces each gradient as soon as it has been accumulated."""

    def __init__(self, model: nn.Module) -> None:
        self.world = dist.get_world_size()
        self.pending = []
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(self.launch)

    def launch(self, p: torch.Tensor) -> None:
        p.grad /= self.world
        self.pending.append(dist.all_reduce(p.grad, async_op=True))

    def finish(self) -> None:
        for work in self.pending:
            work.wait()
        self.pending.clear()


def limit(params, largest: float) -> float:
    grads = [p.grad for p in params]
    norm = torch.sqrt(sum(g.square().sum() for g in grads))
    if norm > largest:
        for g in grads:
            g.mul_(largest / (norm + 1e-6))
    return norm.item()


def batch(gen: torch.Generator):
    tokens = torch.randint(0, 12000, (32, 8), generator=gen)
    return tokens, tokens.sum(1) % 50


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    rank = dist.get_rank()
    torch.manual_seed(17)
    model = BagModel()
    comm = Communicator(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    gen = torch.Generator().manual_seed(170 + rank)
    for step in range(3):
        tokens, target = batch(gen)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens), target)
        loss.backward()
        norm = limit(list(model.parameters()), 0.05)
        comm.finish()
        optimizer.step()
        if rank == 0 and step % 2 == 1:
            print(f"step {step + 1} loss {loss.item():.4f} norm {norm:.4f}")
    print(f"rank {rank} embedding {model.embed.weight.double().norm().item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
