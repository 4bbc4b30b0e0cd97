"""Page images kept as bytes; zero-copy reads and in-place augmentation of fresh tensors."""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pages(Dataset):
    def __init__(self, count, side, seed):
        rng = np.random.default_rng(seed)
        self.labels = torch.from_numpy(rng.integers(0, 2, count))
        shape = rng.integers(0, 80, (count, 1, side, side))
        shape[:, :, : side // 2] += 60 * self.labels.numpy()[:, None, None, None]
        self.store = shape.astype(np.uint8)
        self.bytes = torch.from_numpy(self.store)
        self.checksum = int(self.store.sum())

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.bytes[i], self.labels[i]


class Augment:
    def __init__(self, seed, scale=255.0):
        self.gen = torch.Generator().manual_seed(seed)
        self.scale = scale

    def __call__(self, batch):
        x = batch.float()
        x.div_(self.scale)
        x.sub_(x.mean((2, 3), keepdim=True))
        flip = torch.rand(len(x), generator=self.gen) < 0.5
        x[flip] = x[flip].flip(-1)
        row = int(torch.randint(x.shape[2], (1,), generator=self.gen))
        x[:, :, row] = 0.0
        return x


def train(model, pages, augment, epochs):
    gen = torch.Generator().manual_seed(0)
    loader = DataLoader(pages, batch_size=16, shuffle=True, generator=gen)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(epochs):
        total = 0.0
        for raw, y in loader:
            loss = F.cross_entropy(model(augment(raw).flatten(1)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f}")


def main():
    torch.manual_seed(2)
    pages = Pages(96, 8, seed=1)
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(inplace=True), nn.Linear(16, 2))
    train(model, pages, Augment(seed=3), 5)
    whole = pages.bytes.float().div_(255.0)
    print("store unchanged", int(pages.store.sum()) == pages.checksum, round(whole.mean().item(), 5))


if __name__ == "__main__":
    main()
