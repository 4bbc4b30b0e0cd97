"""Multi-level feature fusion for coarse segmentation of synthetic blobs."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, base):
        super().__init__()
        chans = [1, base, base * 2, base * 2, base * 4]
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, stride=2 if i else 1, padding=1), nn.BatchNorm2d(b), nn.GELU())
            for i, (a, b) in enumerate(zip(chans, chans[1:]))
        )

    def forward(self, x):
        feats = []
        for stage in self.stages:
            x = stage(x)
            feats.append(x)
        return feats


class FusionHead(nn.Module):
    """Brings every level to the anchor's size, smooths it and multiplies all levels."""

    def __init__(self, channel):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(channel, channel, kernel_size=3, stride=1, padding=1)] * 4)

    def forward(self, xs, anchor):
        ans = torch.ones_like(anchor)
        size = anchor.shape[-2:]
        for i, x in enumerate(xs):
            if x.shape[-2:] != size:
                x = F.interpolate(x, size=size, mode="bilinear", align_corners=True)
            ans = ans * self.convs[i](x)
        return ans


class BlobNet(nn.Module):
    def __init__(self, base=8, channel=8, n_classes=2):
        super().__init__()
        self.encoder = Encoder(base)
        self.reduce = nn.ModuleList(nn.Conv2d(c, channel, 1) for c in (base, base * 2, base * 2, base * 4))
        self.fuse = FusionHead(channel)
        self.out = nn.Conv2d(channel, n_classes, 1)

    def forward(self, x):
        feats = [r(f) for r, f in zip(self.reduce, self.encoder(x))]
        return self.out(self.fuse(feats, feats[0]))


def blobs(n, size, gen):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    centre = torch.randint(6, size - 6, (n, 2, 1, 1), generator=gen)
    mask = ((yy - centre[:, 0]) ** 2 + (xx - centre[:, 1]) ** 2 < 25).long()
    image = mask.float().unsqueeze(1) + 0.5 * torch.randn(n, 1, size, size, generator=gen)
    return image, mask


def evaluate(net, images, masks):
    net.eval()
    with torch.no_grad():
        pred = net(images).argmax(1)
    net.train()
    inter = ((pred == 1) & (masks == 1)).sum()
    return (inter / ((pred == 1) | (masks == 1)).sum().clamp(min=1)).item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--iters", type=int, default=15)
    p.add_argument("--lr", type=float, default=3e-3)
    a = p.parse_args()
    torch.manual_seed(11)
    gen = torch.Generator().manual_seed(5)
    net = BlobNet()
    print("parameters", sum(q.numel() for q in net.parameters()))
    opt = torch.optim.AdamW(net.parameters(), lr=a.lr)
    val = blobs(8, 32, gen)
    for it in range(a.iters):
        image, mask = blobs(8, 32, gen)
        loss = F.cross_entropy(net(image), mask)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if it % 5 == 4:
            print(f"iter {it} loss {loss.item():.4f} iou {evaluate(net, *val):.3f}")


if __name__ == "__main__":
    main()
