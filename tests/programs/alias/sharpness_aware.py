"""Sharpness-aware minimisation wrapped around SGD."""
import torch
import torch.nn.functional as F
from torch import nn


class SharpnessAware:
    def __init__(self, params, rho, **kwargs):
        self.base = torch.optim.SGD(params, **kwargs)
        self.rho = rho
        self.old = {}

    def _params(self):
        for group in self.base.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    yield p

    @torch.no_grad()
    def first_step(self):
        norm = torch.stack([p.grad.norm() for p in self._params()]).norm()
        for p in self._params():
            self.old[p] = p.data
            p.add_(p.grad, alpha=(self.rho / (norm + 1e-12)).item())
        self.base.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for p in self._params():
            p.data = self.old[p]
        self.base.step()
        self.base.zero_grad()


def spirals(n, seed):
    gen = torch.Generator().manual_seed(seed)
    t = torch.rand(n, generator=gen) * 6
    y = torch.arange(n) % 2
    angle = t + torch.pi * y
    x = torch.stack([t * angle.cos(), t * angle.sin()], 1) / 3
    return x + 0.08 * torch.randn(n, 2, generator=gen), y


def weight_norm(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()]).norm().item()


def main():
    torch.manual_seed(0)
    x, y = spirals(200, 1)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
    sam = SharpnessAware(model.parameters(), rho=0.1, lr=0.05, momentum=0.9)
    for step in range(150):
        F.cross_entropy(model(x), y).backward()
        sam.first_step()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        sam.second_step()
        if step % 50 == 0:
            print(f"step {step} perturbed loss {loss.item():.4f} weight norm {weight_norm(model):.4f}")
    with torch.no_grad():
        logits = model(x)
    print(f"loss {F.cross_entropy(logits, y).item():.4f} accuracy {(logits.argmax(1) == y).float().mean().item():.3f}")


if __name__ == "__main__":
    main()
