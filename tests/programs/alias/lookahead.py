"""Lookahead around Adam."""
import torch
import torch.nn.functional as F
from torch import nn


class Lookahead:
    def __init__(self, optimizer, every, pull):
        self.optimizer, self.every, self.pull = optimizer, every, pull
        self.params = [p for g in optimizer.param_groups for p in g["params"]]
        self.slow = [p.detach().clone() for p in self.params]
        self.calls = 0

    def zero_grad(self):
        self.optimizer.zero_grad(set_to_none=False)

    @torch.no_grad()
    def step(self):
        self.optimizer.step()
        self.calls += 1
        if self.calls % self.every:
            return
        for slow, p in zip(self.slow, self.params):
            slow.add_(p.detach() - slow, alpha=self.pull)
            p.copy_(slow)

    def gap(self):
        return sum((s - p).norm().item() for s, p in zip(self.slow, self.params))


def rings(n, seed):
    gen = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (n,), generator=gen)
    angle = 6.28 * torch.rand(n, generator=gen)
    radius = 1.0 + y + 0.2 * torch.randn(n, generator=gen)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), y


def main():
    torch.manual_seed(0)
    x, y = rings(160, 3)
    net = nn.Sequential(nn.Linear(2, 24), nn.ReLU(inplace=True), nn.Linear(24, 2))
    opt = Lookahead(torch.optim.Adam(net.parameters(), lr=0.02), every=5, pull=0.5)
    for step in range(60):
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        if step % 12 == 0:
            print(f"step {step} loss {loss.item():.4f} gap {opt.gap():.4f}")
    with torch.no_grad():
        print("accuracy", round((net(x).argmax(1) == y).float().mean().item(), 3))


if __name__ == "__main__":
    main()
