"""Three losses, one log book."""
from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn


class LogBook:
    def __init__(self):
        self.curves = defaultdict(list)

    def write(self, losses):
        for name, value in losses.items():
            self.curves[name].append(value)

    def tail(self, name, n=10):
        return sum(float(v) for v in self.curves[name][-n:]) / n


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 24), nn.Tanh())
        self.value = nn.Linear(24, 1)
        self.kind = nn.Linear(24, 3)
        self.back = nn.Linear(24, 8)

    def forward(self, x):
        h = self.trunk(x)
        return self.value(h).squeeze(1), self.kind(h), self.back(h)


def compute(net, x, value, kind):
    v, k, b = net(x)
    losses = {"value": F.smooth_l1_loss(v, value), "kind": F.cross_entropy(k, kind), "back": F.mse_loss(b, x)}
    losses["total"] = losses["value"] + losses["kind"] + 0.5 * losses["back"]
    return losses


def main():
    torch.manual_seed(1)
    gen = torch.Generator().manual_seed(2)
    net, book = Net(), LogBook()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(80):
        x = torch.randn(24, 8, generator=gen)
        losses = compute(net, x, x[:, 0] * 2, (x[:, 1] > 0).long() + (x[:, 2] > 0.5).long())
        optimizer.zero_grad()
        losses["total"].backward()
        optimizer.step()
        book.write(losses)
        if step % 20 == 19:
            print(step, {k: round(book.tail(k), 4) for k in book.curves})


if __name__ == "__main__":
    main()
