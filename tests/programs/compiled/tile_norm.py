"""Satellite tile classification from tiles that are held in memory."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

MEAN = torch.tensor([0.8, 0.5, 0.3, 0.6]).view(4, 1, 1)
STD = torch.tensor([0.3, 0.2, 0.2, 0.25]).view(4, 1, 1)


class Tiles(Dataset):
    def __init__(self, count: int, seed: int) -> None:
        gen = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 3, (count,), generator=gen)
        noise = torch.randn(count, 4, 12, 12, generator=gen)
        shift = F.one_hot(self.labels, 4).float().view(count, 4, 1, 1)
        self.bands = (noise + 0.4 * shift) * STD + MEAN

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int):
        return self.bands[i], self.labels[i]


def pair_batches(data: Tiles, size: int):
    """Sequential batches for evaluation, without collating again."""
    for lo in range(0, len(data), size):
        yield data.bands[lo : lo + size], data.labels[lo : lo + size]


@torch.compile(backend="aot_eager")
def standardize(tiles: torch.Tensor) -> torch.Tensor:
    tiles -= MEAN
    return tiles.div_(STD)


class Classifier(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(4, 8, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
        )


@torch.no_grad()
def evaluate(model: nn.Module, data: Tiles) -> tuple[float, float]:
    model.eval()
    hits, loss = 0, 0.0
    for tiles, labels in pair_batches(data, 32):
        logits = model(standardize(tiles))
        hits += (logits.argmax(1) == labels).sum().item()
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
    return hits / len(data), loss / len(data)


def main() -> None:
    torch.manual_seed(1)
    train, held_out = Tiles(192, 1), Tiles(96, 2)
    loader = DataLoader(train, batch_size=32, shuffle=True)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(4):
        model.train()
        for tiles, labels in loader:
            loss = F.cross_entropy(model(standardize(tiles)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy, val_loss = evaluate(model, held_out)
        print(f"epoch {epoch} val accuracy {accuracy:.3f} loss {val_loss:.3f}")


if __name__ == "__main__":
    main()
