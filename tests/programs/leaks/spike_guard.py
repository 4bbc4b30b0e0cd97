"""Tabular classifier that skips a batch whose loss is far above the recent ones."""
import collections
import statistics

import torch
from torch import nn


class SpikeGuard:
    def __init__(self, window=7, factor=4.0):
        self.recent = collections.deque(maxlen=window)
        self.factor = factor
        self.skipped = 0

    def allows(self, loss):
        if len(self.recent) == self.recent.maxlen:
            typical = statistics.median(v.item() for v in self.recent)
            if loss.item() > self.factor * typical:
                self.skipped += 1
                return False
        self.recent.append(loss)
        return True


class TopLosses:
    """The hardest few batches so far, by value."""

    def __init__(self, k=3):
        self.k, self.items = k, []

    def offer(self, step, loss):
        self.items.append((step, loss))
        self.items.sort(key=lambda it: it[1].item(), reverse=True)
        del self.items[self.k:]


def table(n, gen, noisy):
    x = torch.randn(n, 10, generator=gen)
    y = (x[:, :3].sum(1) > 0).long()
    if noisy:
        x = x * 40
        y = 1 - y
    return x, y


def main():
    torch.manual_seed(21)
    gen = torch.Generator().manual_seed(22)
    net = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    guard, hard = SpikeGuard(), TopLosses()
    for step in range(40):
        x, y = table(32, gen, noisy=step in (17, 29))
        loss = nn.functional.cross_entropy(net(x), y)
        hard.offer(step, loss)
        if not guard.allows(loss):
            continue
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    print("loss %.3f" % loss.item(), "skipped", guard.skipped, "hardest", [s for s, _ in hard.items])


if __name__ == "__main__":
    main()
