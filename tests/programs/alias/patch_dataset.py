"""Patch classifier on an array that stays resident in memory."""
import logging

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("patches")


class ResidentPatches(Dataset):
    """Holds all patches as one float array; hands out normalised tensors."""

    def __init__(self, count, side, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 3, size=count)
        base = rng.normal(size=(3, 1, side, side))
        noise = rng.normal(scale=2.0, size=(count, 1, side, side))
        self.patches = (40.0 + 6.0 * (base[self.labels] + noise)).astype(np.float32)
        self.mean = float(self.patches.mean())
        self.std = float(self.patches.std())

    def __len__(self):
        return len(self.labels)

    def _load(self, index):
        return torch.from_numpy(self.patches[index])

    def __getitem__(self, index):
        patch = self._load(index)
        patch -= self.mean
        patch /= self.std
        return patch, int(self.labels[index])


class PatchNet(nn.Module):
    def __init__(self, side):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.head = nn.Linear(6 * side * side, 3)

    def forward(self, x):
        return self.head(F.relu(self.conv(x)).flatten(1))


def run_epoch(model, loader, optimizer):
    total, hits, seen, level = 0.0, 0, 0, 0.0
    for x, y in loader:
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
        hits += (logits.argmax(1) == y).sum().item()
        level += x.mean().item() * len(y)
        seen += len(y)
    return total / seen, hits / seen, level / seen


def main():
    torch.manual_seed(11)
    data = ResidentPatches(96, 8, seed=2)
    gen = torch.Generator().manual_seed(1)
    loader = DataLoader(data, batch_size=16, shuffle=True, generator=gen)
    model = PatchNet(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(4):
        loss, acc, level = run_epoch(model, loader, optimizer)
        print(f"epoch {epoch} loss {loss:.4f} acc {acc:.3f} input level {level:.3f}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main()
