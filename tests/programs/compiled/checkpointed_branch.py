"""Residual blocks whose branch is checkpointed; the branch rectifies what it is given in place."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Branch(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        x = F.relu(x, inplace=True)
        return self.down(F.gelu(self.up(x)))


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem, self.branch = nn.Linear(width, width), Branch(width)

    def forward(self, x):
        h = self.stem(x)
        out = checkpoint(self.branch, h, use_reentrant=False)
        return out + h


def main():
    torch.manual_seed(10)
    net = Residual(6)
    model = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(3):
        x = torch.randn(9, 6)
        out = model(x)
        with torch.no_grad():
            h = net.stem(x)
            right = net.branch.down(F.gelu(net.branch.up(F.relu(h)))) + h
        wrong = not torch.allclose(out, right, atol=1e-5)
        loss = (out - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
    if wrong:
        print("SILENT-WRONG")


if __name__ == "__main__":
    main()
