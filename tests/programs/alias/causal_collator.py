"""Bag-of-context language model with hashed embeddings; a collator builds inputs and labels."""
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

PAD, IGNORE, VOCAB = 0, -100, 30


class CausalCollator:
    def __init__(self, pad, ignore):
        self.pad, self.ignore = pad, ignore

    def _pad(self, rows):
        out = torch.full((len(rows), max(map(len, rows))), self.pad)
        for k, row in enumerate(rows):
            out[k, : len(row)] = torch.tensor(row)
        return out

    def __call__(self, rows):
        input_ids = self._pad(rows)
        labels = input_ids
        labels[labels == self.pad] = self.ignore
        return {"input_ids": input_ids, "labels": labels}


class HashedBag(nn.Module):
    def __init__(self, buckets=64, dim=12):
        super().__init__()
        self.buckets = buckets
        self.table = nn.Embedding(buckets, dim)
        self.head = nn.Linear(dim, VOCAB)

    def context(self, ids):
        hashed = (ids * 2654435761) % self.buckets
        real = (ids != PAD).unsqueeze(-1)
        total = (self.table(hashed) * real).sum(1)
        return total / real.sum(1).clamp(min=1)

    def forward(self, ids):
        return self.head(self.context(ids))


def corpus(n, seed):
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        start, stride = rng.randrange(1, VOCAB), rng.randrange(1, 4)
        rows.append([1 + (start + stride * k) % (VOCAB - 1) for k in range(rng.randrange(3, 9))])
    return rows


def next_token(labels):
    lengths = (labels != IGNORE).sum(1)
    return labels.gather(1, (lengths - 1).unsqueeze(1)).squeeze(1)


def train(model, loader, epochs=3):
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for batch in loader:
            loss = F.cross_entropy(model(batch["input_ids"]), next_token(batch["labels"]), ignore_index=IGNORE)
            opt.zero_grad()
            loss.backward()
            opt.step()
    return loss.item()


@torch.no_grad()
def padding_gap(model, rows, collate):
    together = model.context(collate(rows)["input_ids"])
    alone = torch.cat([model.context(torch.tensor([row])) for row in rows])
    return together.norm().item(), alone.norm().item()


def main():
    torch.manual_seed(0)
    rows = corpus(24, seed=4)
    collate = CausalCollator(PAD, IGNORE)
    model = HashedBag()
    loss = train(model, DataLoader(rows, batch_size=6, collate_fn=collate))
    return (*padding_gap(model, rows[:6], collate), loss)


if __name__ == "__main__":
    got, want, loss = main()
    verdict = "AGREES" if abs(got - want) < 1e-4 else "SILENT-WRONG"
    print(verdict, f"context in a batch {got:.5f} row by row {want:.5f} (loss {loss:.3f})")
