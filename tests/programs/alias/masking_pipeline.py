"""Pretraining pipeline whose stages edit a private batch in place."""
import torch
import torch.nn.functional as F
from torch import nn

MASK = 20


class Corpus:
    def __init__(self, rows, length, seed):
        gen = torch.Generator().manual_seed(seed)
        start = torch.randint(0, 20, (rows, 1), generator=gen)
        stride = torch.randint(1, 4, (rows, 1), generator=gen)
        self.rows = (start + stride * torch.arange(length)) % 20

    def batch(self, ids):
        return torch.stack([self.rows[i] for i in ids])


class Stage:
    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)


class Mask(Stage):
    def __call__(self, batch):
        batch["labels"] = batch["tokens"].clone()
        chosen = torch.rand(batch["tokens"].shape, generator=self.gen) < 0.2
        batch["tokens"].masked_fill_(chosen, MASK)
        batch["labels"][~chosen] = -100
        return batch


class Corrupt(Stage):
    def __call__(self, batch):
        tokens = batch["tokens"]
        hit = (tokens == MASK) & (torch.rand(tokens.shape, generator=self.gen) < 0.1)
        tokens[hit] = torch.randint(20, (int(hit.sum()),), generator=self.gen)
        return batch


def main():
    torch.manual_seed(0)
    corpus = Corpus(64, 10, seed=1)
    before = corpus.rows.sum().item()
    stages = [Mask(2), Corrupt(3)]
    embed, mix, head = nn.Embedding(21, 24), nn.GRU(24, 24, batch_first=True, bidirectional=True), nn.Linear(48, 20)
    params = [p for m in (embed, mix, head) for p in m.parameters()]
    optimizer = torch.optim.Adam(params, lr=0.01)
    for step in range(60):
        batch = {"tokens": corpus.batch(range(step % 4 * 16, step % 4 * 16 + 16))}
        for stage in stages:
            batch = stage(batch)
        logits = head(mix(embed(batch["tokens"]))[0])
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    print("corpus unchanged", corpus.rows.sum().item() == before)


if __name__ == "__main__":
    main()
