"""Convolutional front end of a small speech recogniser (DeepSpeech style)."""
import math

import torch
import torch.nn as nn


class MaskConv(nn.Module):
    """Runs a stack of convolutions and zeroes what lies beyond each utterance."""

    def __init__(self, seq_module):
        super().__init__()
        self.seq_module = seq_module

    def forward(self, x, lengths):
        # x: (batch, channel, freq, time)
        for module in self.seq_module:
            x = module(x)
            mask = torch.zeros_like(x, dtype=torch.bool)
            for i, length in enumerate(lengths):
                length = length.item()
                if (mask[i].size(2) - length) > 0:
                    mask[i].narrow(2, length, mask[i].size(2) - length).fill_(1)
            x = x.masked_fill(mask, 0)
        return x, lengths


class SpecFrontEnd(nn.Module):
    def __init__(self, n_freq=16, hidden=24, labels="_'abcdefgh "):
        super().__init__()
        self.conv = MaskConv(nn.Sequential(
            nn.Conv2d(1, 4, kernel_size=(5, 3), stride=(2, 1), padding=(2, 1)),
            nn.GroupNorm(2, 4),
            nn.Hardtanh(0, 20),
        ))
        width = int(math.floor((n_freq + 4 - 5) / 2) + 1) * 4
        self.proj = nn.Linear(width, hidden)
        self.fc = nn.Linear(hidden, len(labels))

    def forward(self, spect, lengths):
        x, lengths = self.conv(spect, lengths)
        n, c, f, t = x.size()
        x = x.view(n, c * f, t).transpose(1, 2)
        x = torch.relu(self.proj(x))
        return self.fc(x).log_softmax(-1), lengths


def factory():
    torch.manual_seed(1)
    model = SpecFrontEnd().eval()
    return model, (torch.rand(3, 1, 16, 20), torch.tensor([20, 13, 7]))
