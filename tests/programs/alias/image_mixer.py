"""Classifier trained with mixed pictures."""
import random

import torch
import torch.nn.functional as F
from torch import nn


class Mixer:
    def __init__(self, alpha, classes, seed):
        self.alpha, self.classes = alpha, classes
        self.rng = random.Random(seed)

    def draw(self):
        return self.rng.betavariate(self.alpha, self.alpha)

    def blend(self, x, lam):
        return x.mul_(lam).add_(x.flip(0), alpha=1 - lam)

    def targets(self, y, lam):
        hot = F.one_hot(y, self.classes).float()
        return lam * hot + (1 - lam) * hot.flip(0)

    def __call__(self, x, y):
        lam = self.draw()
        return self.blend(x, lam), self.targets(y, lam)


class Shapes:
    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self, n):
        y = torch.randint(4, (n,), generator=self.gen)
        x = 0.5 + 0.2 * torch.randn(n, 1, 8, 8, generator=self.gen)
        for i, label in enumerate(y.tolist()):
            r, c = divmod(label, 2)
            x[i, :, 4 * r:4 * r + 4, 4 * c:4 * c + 4] += 0.4
        return x, y


def build():
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 4))


def train(model, shapes, mixer, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    brightness = 0.0
    for step in range(steps):
        x, target = mixer(*shapes.batch(32))
        brightness += x.mean().item() / steps
        loss = -(target * model(x).log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    return brightness


def main():
    torch.manual_seed(0)
    shapes = Shapes(2)
    model = build()
    brightness = train(model, shapes, Mixer(1.0, 4, seed=3), 100)
    x, y = shapes.batch(400)
    with torch.no_grad():
        logits = model(x)
    print(f"mean brightness seen in training {brightness:.4f}, of plain pictures {x.mean().item():.4f}")
    print(f"accuracy {(logits.argmax(1) == y).float().mean().item():.3f} loss {F.cross_entropy(logits, y).item():.4f}")


if __name__ == "__main__":
    main()
