"""Ranks documents for queries; document vectors are cached by text."""
import random

import torch
from torch import nn


class DocumentEncoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.table = nn.EmbeddingBag(97, dim)
        self.proj = nn.Sequential(nn.Linear(dim, dim), nn.Tanh())
        self.cache = {}
        self.hits = 0

    def ids(self, text):
        return torch.tensor([[sum(map(ord, w)) % 97 for w in text.split()]])

    def forward(self, text):
        if text in self.cache:
            self.hits += 1
            return self.cache[text].detach()
        vector = self.proj(self.table(self.ids(text)))[0]
        self.cache[text] = vector
        return vector


class Texts:
    WORDS = "sun rain snow wind tide moon star leaf root bark seed vine".split()

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.serial = 0

    def document(self):
        self.serial += 1
        if self.serial % 9 == 0:
            return "sun rain snow"
        return " ".join(self.rng.choices(self.WORDS, k=4)) + f" d{self.serial}"

    def triple(self):
        query = self.rng.choice(self.WORDS)
        return query, f"{query} {self.document()}", self.document()


def main():
    torch.manual_seed(5)
    encoder, texts = DocumentEncoder(), Texts(2)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=0.01)
    running = 0.0
    for step in range(100):
        query, good, bad = texts.triple()
        q = encoder.proj(encoder.table(encoder.ids(query)))[0]
        margin = 0.5 - q @ encoder(good) + q @ encoder(bad)
        loss = margin.clamp(min=0) + 1e-3 * q.pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running = 0.9 * running + 0.1 * loss.item()
        if step % 25 == 24:
            print(f"step {step} loss {running:.4f} cached {len(encoder.cache)} hits {encoder.hits}")


if __name__ == "__main__":
    main()
