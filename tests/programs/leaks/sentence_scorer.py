import collections
import random

import torch
import torch.nn as nn

VOCAB, PAD = 40, 0


class TooLong(ValueError):
    pass


class SentenceEncoder(nn.Module):
    def __init__(self, dim=20, max_positions=9):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.pos = nn.Embedding(max_positions, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.score = nn.Linear(dim, 1)
        self.max_positions = max_positions

    def forward(self, ids):
        h = self.ff(self.tok(ids))
        if ids.size(1) > self.max_positions:
            raise TooLong(f"{ids.size(1)} tokens, at most {self.max_positions}")
        h = h + self.pos(torch.arange(ids.size(1)))
        mask = (ids != PAD).unsqueeze(-1)
        return self.score((h * mask).sum(1) / mask.sum(1)).squeeze(-1)


def corpus(n, rng):
    for i in range(n):
        length = rng.randint(4, 9) if i % 3 else rng.randint(10, 14)
        rows = [[rng.randint(1, VOCAB - 1) for _ in range(length)] for _ in range(6)]
        ids = torch.tensor(rows)
        yield ids, (ids % 2).float().mean(1)


class Trainer:
    def __init__(self, model, lr=5e-3):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.mse = nn.MSELoss()
        self.skipped = []

    def step(self, ids, target):
        self.opt.zero_grad()
        loss = self.mse(self.model(ids), target)
        loss.backward()
        self.opt.step()
        return loss.item()

    def fit(self, stream):
        losses = []
        for k, (ids, target) in enumerate(stream):
            try:
                losses.append(self.step(ids, target))
            except TooLong as err:
                self.skipped.append((k, err))
                self.step(ids[:, : self.model.max_positions], target)
        return losses

    def summary(self):
        kinds = collections.Counter(type(e).__name__ for _, e in self.skipped)
        return ", ".join(f"{n} x {name}" for name, n in kinds.items())


if __name__ == "__main__":
    torch.manual_seed(0)
    rng = random.Random(0)
    t = Trainer(SentenceEncoder())
    hist = t.fit(corpus(36, rng))
    print("first", round(hist[0], 4), "last", round(hist[-1], 4))
    print("truncated:", t.summary())
    for k, e in t.skipped[:2]:
        print("  batch", k, "->", e)
