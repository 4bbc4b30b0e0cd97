"""Train a small residual classifier on spirals; somewhere in it a helper spoils the gradient.

Run it with `python` to see what torch says, and with `torchsan run` to see the line that did it.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

CLASSES, POINTS = 3, 60


def spirals(generator):
    """Points on three interleaved arms, and the arm of each."""
    radius = torch.linspace(0.1, 1.0, POINTS).repeat(CLASSES)
    arm = torch.arange(CLASSES).repeat_interleave(POINTS)
    angle = radius * 5 + arm * (2 * math.pi / CLASSES)
    noise = torch.randn(2, CLASSES * POINTS, generator=generator) * 0.05
    return (torch.stack([radius * angle.cos(), radius * angle.sin()]) + noise).T, arm


def soften(gate, temperature):
    """Pull a gate towards one half."""
    gate.sub_(0.5).div_(temperature).add_(0.5)
    return gate


def open_gate(layer, features, temperature):
    return soften(torch.sigmoid(layer(features)), temperature)


class GatedResidual(nn.Module):
    def __init__(self, width, temperature):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.value = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        self.temperature = temperature

    def forward(self, x):
        features = self.norm(x)
        update = F.gelu(self.value(features))
        return x + update * open_gate(self.gate, features, self.temperature)


class SpiralNet(nn.Module):
    def __init__(self, width=32, depth=4):
        super().__init__()
        self.stem = nn.Linear(2, width)
        self.blocks = nn.ModuleList([GatedResidual(width, temperature=1.5) for _ in range(depth)])
        self.head = nn.Linear(width, CLASSES)

    def forward(self, points):
        h = self.stem(points)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def train(net, points, arms, epochs=40):
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for epoch in range(epochs):
        loss = F.cross_entropy(net(points), arms)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 10 == 0:
            print(f"epoch {epoch:3d}  loss {loss.item():.3f}")
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    points, arms = spirals(torch.Generator().manual_seed(1))
    final = train(SpiralNet(), points, arms)
    print(f"final loss {final:.3f}")
