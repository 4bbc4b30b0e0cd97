"""Regresses boxes from features; loss on corners, monitoring on sizes."""
import torch
from torch import nn


def to_corners(boxes):
    """(cx, cy, w, h) -> (x1, y1, x2, y2)"""
    boxes[..., :2] -= boxes[..., 2:] / 2
    boxes[..., 2:] += boxes[..., :2]
    return boxes


def iou(a, b):
    top = torch.maximum(a[..., :2], b[..., :2])
    bottom = torch.minimum(a[..., 2:], b[..., 2:])
    inter = (bottom - top).clamp(min=0).prod(-1)
    area = lambda t: (t[..., 2:] - t[..., :2]).clamp(min=0).prod(-1)
    return inter / (area(a) + area(b) - inter + 1e-6)


class Regressor(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, 32), nn.Tanh(), nn.Linear(32, 4))

    def forward(self, x):
        raw = self.body(x)
        return torch.cat([raw[:, :2], raw[:, 2:].exp()], 1)


class Meter:
    def __init__(self):
        self.values = []

    def add(self, value):
        self.values.append(float(value))

    def mean(self):
        return sum(self.values) / len(self.values)


def make_data(n, seed):
    gen = torch.Generator().manual_seed(seed)
    boxes = torch.cat([torch.rand(n, 2, generator=gen), 0.2 + 0.5 * torch.rand(n, 2, generator=gen)], 1)
    mix = torch.randn(4, 10, generator=gen)
    return boxes @ mix + 0.01 * torch.randn(n, 10, generator=gen), boxes


def epoch(model, optimizer, x, boxes, batch=32):
    overlap, size = Meter(), Meter()
    for i in range(0, len(x), batch):
        target = boxes[i:i + batch]
        pred = model(x[i:i + batch])
        corners = to_corners(target)
        pred_corners = torch.cat([pred[:, :2] - pred[:, 2:] / 2, pred[:, :2] + pred[:, 2:] / 2], 1)
        loss = (pred_corners - corners).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        overlap.add(iou(pred_corners, corners).mean())
        size.add((pred[:, 2:] / target[:, 2:]).detach().median())
    return overlap.mean(), size.mean()


def main():
    torch.manual_seed(0)
    x, boxes = make_data(256, 1)
    model = Regressor(10)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for n in range(6):
        overlap, size = epoch(model, optimizer, x, boxes)
        print(f"epoch {n} overlap {overlap:.4f} size ratio {size:.4f}")


if __name__ == "__main__":
    main()
