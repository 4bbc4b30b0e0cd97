"""Infrared spectra held in RAM as NumPy, served by a Dataset with torchvision-like transforms."""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, x):
        for step in self.steps:
            x = step(x)
        return x


class ToTensor:
    def __call__(self, array):
        return torch.from_numpy(array)


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = float(mean), float(std)

    def __call__(self, x):
        return x.sub_(self.mean).div_(self.std)


class Spectra(Dataset):
    def __init__(self, samples, bands, seed, transform=None):
        rng = np.random.default_rng(seed)
        self.targets = rng.integers(0, 2, samples)
        base = np.sin(np.linspace(0, 6, bands))[None] * (1 + 0.3 * self.targets[:, None])
        self.data = (4 + base + 0.1 * rng.standard_normal((samples, bands))).astype(np.float32)
        self.transform = transform

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        x = self.data[index]
        if self.transform is not None:
            x = self.transform(x)
        return x, int(self.targets[index])


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value, n):
        self.total += value * n
        self.count += n

    @property
    def mean(self):
        return self.total / self.count


def run_epoch(net, loader, opt):
    level, loss_meter = Meter(), Meter()
    for x, y in loader:
        level.add(x.mean().item(), len(x))
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss_meter.add(loss.item(), len(x))
    return level.mean, loss_meter.mean


def main(epochs=4):
    torch.manual_seed(0)
    data = Spectra(40, 12, seed=7)
    data.transform = Compose(ToTensor(), Normalize(data.data.mean(), data.data.std()))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    net = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    return [run_epoch(net, loader, opt) for _ in range(epochs)]


if __name__ == "__main__":
    history = main()
    first, last = history[0][0], history[-1][0]
    verdict = "AGREES" if abs(first - last) < 1e-3 else "SILENT-WRONG"
    print(verdict, f"mean input of epoch 1 {first:.4f} of epoch {len(history)} {last:.4f} loss {history[-1][1]:.4f}")
