"""Small PointNet on synthetic solids, with on-the-fly augmentation."""
import argparse
import copy
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Cloud:
    pos: torch.Tensor
    label: int


def sample_solid(kind, n, gen):
    direction = torch.randn(n, 3, generator=gen)
    direction = direction / direction.norm(dim=1, keepdim=True)
    if kind == 0:
        return direction
    return direction / direction.abs().amax(dim=1, keepdim=True)


class BaseTransform:
    def __call__(self, cloud):
        return self.forward(copy.copy(cloud))

    def forward(self, cloud):
        raise NotImplementedError


class RandomScale(BaseTransform):
    def __init__(self, low, high):
        self.low, self.high = low, high

    def forward(self, cloud):
        factor = torch.empty(1).uniform_(self.low, self.high)
        cloud.pos *= factor
        return cloud


class RandomSpin(BaseTransform):
    def forward(self, cloud):
        angle = float(torch.rand(1)) * 2 * math.pi
        c, s = math.cos(angle), math.sin(angle)
        rot = torch.tensor([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
        cloud.pos = cloud.pos @ rot.T
        return cloud


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, cloud):
        for step in self.steps:
            cloud = step(cloud)
        return cloud


class SolidDataset(Dataset):
    def __init__(self, size, points, transform=None, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.clouds = [Cloud(sample_solid(i % 2, points, gen), i % 2) for i in range(size)]
        self.transform = transform

    def __len__(self):
        return len(self.clouds)

    def __getitem__(self, index):
        cloud = self.clouds[index]
        if self.transform is not None:
            cloud = self.transform(cloud)
        return cloud.pos, cloud.label


class PointNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width))
        self.head = nn.Linear(width, 2)

    def forward(self, pos):
        return self.head(self.local(pos).amax(dim=1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--points", type=int, default=48)
    args = parser.parse_args()
    torch.manual_seed(3)
    train = SolidDataset(32, args.points, Compose(RandomScale(1.05, 1.4), RandomSpin()))
    loader = DataLoader(train, batch_size=8, shuffle=True)
    net = PointNet()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for epoch in range(args.epochs):
        total = 0.0
        for pos, label in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(pos), label)
            loss.backward()
            opt.step()
            total += loss.item()
        radius = torch.stack([c.pos.norm(dim=1).mean() for c in train.clouds]).mean()
        print(f"epoch {epoch} loss {total / len(loader):.4f} mean radius {radius:.3f}")


if __name__ == "__main__":
    main()
