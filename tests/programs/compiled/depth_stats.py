"""Monocular depth on synthetic ramps with a hand-written normalisation layer."""
import torch
from torch import nn
from torch.nn import functional as F


class StreamNorm(nn.Module):
    """Batch statistics for training, running ones for evaluation."""

    def __init__(self, channels: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))
        self.register_buffer("mean", torch.zeros(channels, 1, 1))
        self.register_buffer("var", torch.ones(channels, 1, 1))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.momentum = momentum

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            mean = x.mean((0, 2, 3), keepdim=True)[0]
            var = x.var((0, 2, 3), unbiased=False, keepdim=True)[0]
            self.seen += 1
            with torch.no_grad():
                self.mean.lerp_(mean, self.momentum)
                self.var.lerp_(var, self.momentum)
        else:
            mean, var = self.mean, self.var
        return (x - mean) * torch.rsqrt(var + 1e-5) * self.weight + self.bias


class DepthNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), StreamNorm(12), nn.ReLU(inplace=True))
        self.mid = nn.Sequential(nn.Conv2d(12, 12, 3, padding=1), StreamNorm(12))
        self.out = nn.Conv2d(12, 1, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        h = self.enc(image)
        skip = self.mid(h)
        skip += h
        return F.softplus(self.out(F.relu_(skip))).squeeze(1)


def scene(batch: int, gen: torch.Generator):
    tilt = torch.rand(batch, 2, 1, 1, generator=gen)
    axis = torch.linspace(0, 1, 16)
    depth = 0.5 + tilt[:, 0] * axis[:, None] + tilt[:, 1] * axis[None]
    image = torch.stack([depth, 1 / depth, depth.square()], 1)
    image.add_(torch.randn(image.shape, generator=gen), alpha=0.1)
    return image, depth


def main() -> None:
    torch.manual_seed(14)
    gen = torch.Generator().manual_seed(15)
    net = DepthNet()
    run = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(16):
        image, depth = scene(8, gen)
        loss = F.l1_loss(run(image), depth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step {step:2d} l1 {loss.item():.4f}")
    net.eval()
    with torch.no_grad():
        image, depth = scene(16, gen)
        print(f"held out l1 {F.l1_loss(run(image), depth).item():.4f} after {int(net.enc[1].seen)} batches")


if __name__ == "__main__":
    main()
