"""Factorisation machine over categorical fields, offsets made with NumPy."""
import numpy as np
import torch
import torch.nn as nn


class FeaturesEmbedding(nn.Module):
    def __init__(self, field_dims, dim):
        super().__init__()
        self.table = nn.Embedding(int(np.sum(field_dims)), dim)
        offsets = np.concatenate([[0], np.cumsum(field_dims)[:-1]])
        self.register_buffer("offsets", torch.from_numpy(offsets.astype(np.int64)), persistent=False)

    def forward(self, x):
        return self.table(x + self.offsets.unsqueeze(0))


class PairwiseFM(nn.Module):
    def __init__(self, reduce_sum=True):
        super().__init__()
        self.reduce_sum = reduce_sum

    def forward(self, e):
        ix = e.sum(dim=1) ** 2 - (e ** 2).sum(dim=1)
        if self.reduce_sum:
            ix = ix.sum(dim=1, keepdim=True)
        return 0.5 * ix


class DeepFM(nn.Module):
    def __init__(self, field_dims, dim=6, mlp=(12, 8)):
        super().__init__()
        self.linear = FeaturesEmbedding(field_dims, 1)
        self.embed = FeaturesEmbedding(field_dims, dim)
        self.fm = PairwiseFM()
        self.flat = len(field_dims) * dim
        layers, c = [], self.flat
        for m in mlp:
            layers += [nn.Linear(c, m), nn.ReLU()]
            c = m
        self.mlp = nn.Sequential(*layers, nn.Linear(c, 1))

    def forward(self, x):
        e = self.embed(x)
        out = self.linear(x).sum(1) + self.fm(e) + self.mlp(e.view(-1, self.flat))
        return torch.sigmoid(out.squeeze(1))


def factory():
    torch.manual_seed(3)
    dims = [5, 9, 3, 12]
    x = torch.stack([torch.randint(0, d, (8,)) for d in dims], 1)
    return DeepFM(dims).eval(), (x,)
