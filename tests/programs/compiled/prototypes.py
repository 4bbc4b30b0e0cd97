"""Swapped prediction between two views with a bank of unit-norm prototypes."""
import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, inp: int, dim: int, prototypes: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(inp, 48), nn.GELU(), nn.Linear(48, dim))
        self.prototypes = nn.Linear(dim, prototypes, bias=False)

    def unit_prototypes(self) -> None:
        w = self.prototypes.weight
        w.data.copy_(F.normalize(w.data, dim=1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = F.normalize(self.trunk(x), dim=1)
        scores = self.prototypes(z)
        self.unit_prototypes()
        return z, scores


@torch.no_grad()
def sinkhorn(scores: torch.Tensor, rounds: int = 3, eps: float = 0.2) -> torch.Tensor:
    q = torch.exp(scores / eps).T
    q /= q.sum()
    k, b = q.shape
    for _ in range(rounds):
        q /= q.sum(1, keepdim=True) * k
        q /= q.sum(0, keepdim=True) * b
    return (q * b).T


def swapped(a: torch.Tensor, b: torch.Tensor, temperature: float = 0.2) -> torch.Tensor:
    qa, qb = sinkhorn(a.detach()), sinkhorn(b.detach())
    pa, pb = F.log_softmax(a / temperature, 1), F.log_softmax(b / temperature, 1)
    return -0.5 * ((qb * pa).sum(1) + (qa * pb).sum(1)).mean()


class Clusters:
    def __init__(self, groups: int, inp: int) -> None:
        self.gen = torch.Generator().manual_seed(31)
        self.centres = 2 * torch.randn(groups, inp, generator=self.gen)

    def two_views(self, batch: int):
        which = torch.randint(0, len(self.centres), (batch,), generator=self.gen)
        base = self.centres[which]
        noise = torch.randn(2, *base.shape, generator=self.gen)
        return base + 0.5 * noise[0], base + 0.5 * noise[1]


def main() -> None:
    torch.manual_seed(2)
    data = Clusters(6, 16)
    encoder = Encoder(16, 12, 18)
    nn.init.normal_(encoder.prototypes.weight, std=2.0)
    step_fn = torch.compile(encoder, backend="aot_eager")
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.5)
    for step in range(12):
        left, right = data.two_views(64)
        _, scores = step_fn(torch.cat([left, right]))
        loss = swapped(*scores.chunk(2))
        optimizer.zero_grad()
        loss.backward()
        norm = encoder.trunk[0].weight.grad.norm()
        optimizer.step()
        if step % 4 == 0:
            print(f"step {step:2d} loss {loss.item():.4f} trunk grad {norm.item():.4f}")


if __name__ == "__main__":
    main()
