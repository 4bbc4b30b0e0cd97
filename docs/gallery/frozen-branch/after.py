import torch
from torch import nn


class Limiter(nn.Module):
    def forward(self, x):
        peak = x.abs().max()
        x = torch.where(peak > 1.0, x / peak, x)
        return x * 0.5


def make():
    return Limiter(), (torch.linspace(-0.5, 0.5, 8),)
