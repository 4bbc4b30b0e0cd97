import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.shortcut = nn.Conv2d(4, 8, 1)
        self.branch = nn.Sequential(nn.ReLU(), nn.Conv2d(4, 8, 3, padding=1))

    def forward(self, x):
        skip = self.shortcut(x)
        return skip + self.branch(x)


torch.manual_seed(0)
stem, block = nn.Conv2d(3, 4, 3, padding=1), Block()
features = stem(torch.randn(2, 3, 8, 8))
loss = block(features).mean()
loss.backward()
print(f"loss {loss.item():.4f}")
