"""Averages gradients over shards, with a live report of the weights."""
import torch
import torch.nn.functional as F
from torch import nn


class ShardAverager:
    def __init__(self, module):
        self.params = dict(module.named_parameters())
        self.sums = {k: torch.zeros_like(p) for k, p in self.params.items()}
        self.shards = 0

    def absorb(self):
        for k, p in self.params.items():
            self.sums[k].add_(p.grad)
            p.grad.zero_()
        self.shards += 1

    def release(self):
        for k, p in self.params.items():
            p.grad.copy_(self.sums[k]).div_(self.shards)
            self.sums[k].zero_()
        self.shards = 0


class LiveReport:
    """Looks at the weights as they are when asked."""

    def __init__(self, module):
        self.views = {k: p.detach() for k, p in module.named_parameters()}
        self.start = {k: v.clone() for k, v in self.views.items()}

    def drift(self):
        return {k: (v - self.start[k]).norm().item() for k, v in self.views.items()}


def shards(x, y, n):
    return zip(x.chunk(n), y.chunk(n))


def main():
    torch.manual_seed(6)
    gen = torch.Generator().manual_seed(0)
    x = torch.randn(96, 7, generator=gen)
    y = x[:, :2].prod(1, keepdim=True).sin() + 0.2 * x[:, 3:4]
    model = nn.Sequential(nn.Linear(7, 24), nn.Tanh(), nn.Linear(24, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.8)
    averager, report = ShardAverager(model), LiveReport(model)
    for step in range(40):
        total = 0.0
        for xs, ys in shards(x, y, 4):
            loss = F.mse_loss(model(xs), ys)
            loss.backward()
            total += loss.item()
            averager.absorb()
        averager.release()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        if step % 10 == 0:
            print(f"step {step} loss {total / 4:.5f}", {k: round(v, 4) for k, v in report.drift().items()})
    print("final", {k: round(v, 4) for k, v in report.drift().items()})


if __name__ == "__main__":
    main()
