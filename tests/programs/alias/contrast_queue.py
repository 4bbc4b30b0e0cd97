"""Momentum contrast with a ring of negative keys."""
import copy

import torch
import torch.nn.functional as F
from torch import nn


class Contrast(nn.Module):
    def __init__(self, encoder, dim, size, momentum):
        super().__init__()
        self.query = encoder
        self.key = copy.deepcopy(encoder).requires_grad_(False)
        self.momentum = momentum
        self.register_buffer("queue", F.normalize(torch.randn(size, dim), dim=1))
        self.at = 0

    @torch.no_grad()
    def follow(self):
        for k, q in zip(self.key.parameters(), self.query.parameters()):
            k.mul_(self.momentum).add_(q, alpha=1 - self.momentum)

    @torch.no_grad()
    def push(self, keys):
        end = self.at + len(keys)
        self.queue[self.at:end] = keys
        self.at = end % len(self.queue)

    def forward(self, a, b):
        q = F.normalize(self.query(a), dim=1)
        with torch.no_grad():
            self.follow()
            k = F.normalize(self.key(b), dim=1)
        positive = (q * k).sum(1, keepdim=True)
        negative = q @ self.queue.clone().t()
        logits = torch.cat([positive, negative], 1)
        logits /= 0.2
        self.push(k)
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))


def views(gen, n):
    base = torch.randn(n, 8, generator=gen)
    return tuple(base + 0.2 * torch.randn(n, 8, generator=gen) for _ in range(2))


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(4)
    net = Contrast(nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 6)), 6, 64, 0.9)
    optimizer = torch.optim.SGD(net.query.parameters(), lr=0.1)
    for step in range(50):
        loss = net(*views(gen, 16))
        optimizer.zero_grad()
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in net.query.parameters()]).norm()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} gradient {norm.item():.4f}")
    print("queue norm", round(net.queue.norm().item(), 4), "at", net.at)


if __name__ == "__main__":
    main()
