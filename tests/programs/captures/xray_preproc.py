"""Chest x-ray classifier that accepts 0..255 and 0..1 images alike."""
import torch
import torch.nn as nn
import torch.nn.functional as F

MEAN, STD = 0.48, 0.24


class Preprocess(nn.Module):
    def __init__(self, mean=MEAN, std=STD, eps=1e-6):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))

    def forward(self, img):
        if img.max() > 1.5:
            img = img / 255.0
        img = (img - self.mean) / self.std
        if img.shape[1] == 1:
            img = img.expand(-1, 3, -1, -1)
        return img


class DenseBlock(nn.Module):
    def __init__(self, cin, growth, n):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(cin + i * growth, growth, 3, padding=1) for i in range(n))

    def forward(self, x):
        feats = [x]
        for conv in self.convs:
            feats.append(F.relu(conv(torch.cat(feats, 1))))
        return torch.cat(feats, 1)


class XrayNet(nn.Module):
    def __init__(self, findings=5):
        super().__init__()
        self.pre = Preprocess()
        self.block = DenseBlock(3, 4, 3)
        self.cls = nn.Linear(15, findings)

    def forward(self, img):
        x = self.block(self.pre(img))
        return torch.sigmoid(self.cls(F.adaptive_avg_pool2d(x, 1).flatten(1)))


def factory():
    torch.manual_seed(23)
    return XrayNet().eval(), (torch.rand(2, 1, 18, 18),)
