"""Image classifier on striped patches with batch mixup in the loader."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def one_hot(target, num_classes, on_value=1.0, off_value=0.0):
    target = target.long().view(-1, 1)
    return torch.full((target.size(0), num_classes), off_value).scatter_(1, target, on_value)


class MixupBatch:
    def __init__(self, alpha, num_classes, smoothing=0.1, seed=0):
        self.alpha, self.num_classes, self.smoothing = alpha, num_classes, smoothing
        self.rng = np.random.default_rng(seed)
        self.enabled = True

    def mix_target(self, target, lam):
        off = self.smoothing / self.num_classes
        on = 1.0 - self.smoothing + off
        y1 = one_hot(target, self.num_classes, on, off)
        y2 = one_hot(target.flip(0), self.num_classes, on, off)
        return y1 * lam + y2 * (1.0 - lam)

    def __call__(self, images, target):
        lam = float(self.rng.beta(self.alpha, self.alpha)) if self.enabled else 1.0
        images = images.mul_(lam).add_(images.flip(0), alpha=1 - lam)
        return images, self.mix_target(target, lam)


class PatchSource:
    """Makes a fresh batch of noisy oriented stripes at each call."""

    def __init__(self, size=16, classes=4, seed=1):
        self.size, self.classes = size, classes
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self, n):
        target = torch.randint(self.classes, (n,), generator=self.gen)
        yy, xx = torch.meshgrid(torch.arange(self.size), torch.arange(self.size), indexing="ij")
        angle = target[:, None, None] * (np.pi / self.classes)
        wave = torch.sin(1.3 * (xx * torch.cos(angle) + yy * torch.sin(angle)))
        return (wave + 0.6 * torch.randn(wave.shape, generator=self.gen)).unsqueeze(1), target


class ConvNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 5, padding=2), nn.BatchNorm2d(12), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(2),
        )
        self.classifier = nn.Linear(96, classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def train_one_epoch(model, source, mixup, opt, steps):
    model.train()
    total = 0.0
    for _ in range(steps):
        images, target = mixup(*source.batch(16))
        loss = torch.sum(-target * F.log_softmax(model(images), dim=-1), dim=-1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--alpha", type=float, default=0.4)
    args = parser.parse_args()
    torch.manual_seed(42)
    source = PatchSource()
    mixup = MixupBatch(args.alpha, source.classes)
    model = ConvNet(source.classes)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        loss = train_one_epoch(model, source, mixup, opt, 8)
        model.eval()
        with torch.no_grad():
            images, target = source.batch(64)
            acc = (model(images).argmax(1) == target).float().mean()
        print(f"epoch {epoch}: loss {loss:.4f} acc {acc:.3f}")


if __name__ == "__main__":
    main()
