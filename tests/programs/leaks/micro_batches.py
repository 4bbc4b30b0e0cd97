"""Segmentation of noisy discs; one optimizer step per several micro-batches."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn


def discs(n, size=16):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    cy, cx = torch.randint(4, size - 4, (2, n, 1, 1))
    r = torch.randint(2, 5, (n, 1, 1))
    mask = ((yy - cy) ** 2 + (xx - cx) ** 2 <= r ** 2).float().unsqueeze(1)
    return mask + 0.5 * torch.randn(n, 1, size, size), mask


class TinyUNet(nn.Module):
    def __init__(self, w=6):
        super().__init__()
        self.d1 = nn.Conv2d(1, w, 3, padding=1)
        self.d2 = nn.Conv2d(w, 2 * w, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * w, w, 2, stride=2)
        self.out = nn.Conv2d(2 * w, 1, 1)

    def forward(self, x):
        a = F.relu(self.d1(x))
        b = F.relu(self.d2(F.max_pool2d(a, 2)))
        return self.out(torch.cat([a, self.up(b)], 1))


def dice_loss(logits, mask, eps=1.0):
    p = logits.sigmoid()
    inter = (p * mask).sum((1, 2, 3))
    return 1 - ((2 * inter + eps) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + eps)).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--updates", type=int, default=12)
    ap.add_argument("--accumulate", type=int, default=6)
    ap.add_argument("--micro", type=int, default=4)
    args = ap.parse_args()

    torch.manual_seed(6)
    net = TinyUNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    total, parts, curve = 0, [], []
    for k in range(args.updates * args.accumulate):
        image, mask = discs(args.micro)
        logits = net(image)
        loss = dice_loss(logits, mask) + F.binary_cross_entropy_with_logits(logits, mask)
        total += loss / args.accumulate
        parts.append(loss)
        if (k + 1) % args.accumulate == 0:
            spread = torch.stack(parts).std()
            (total + 0.05 * spread).backward()
            opt.step()
            opt.zero_grad()
            curve.append(total.item())
            total, parts = 0, []
    print("start {:.3f} end {:.3f}".format(curve[0], curve[-1]))


if __name__ == "__main__":
    main()
