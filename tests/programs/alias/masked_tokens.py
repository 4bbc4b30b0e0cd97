"""Masked-token pretraining on a synthetic grammar."""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Options:
    vocab: int = 16
    length: int = 12
    mask_rate: float = 0.25
    steps: int = 80
    seed: int = 0

    @property
    def mask_id(self):
        return self.vocab


class MaskingCollator:
    def __init__(self, opt):
        self.opt = opt
        self.gen = torch.Generator().manual_seed(opt.seed)

    def __call__(self, rows):
        inputs = torch.stack(rows)
        labels = inputs
        chosen = torch.rand(inputs.shape, generator=self.gen) < self.opt.mask_rate
        inputs[chosen] = self.opt.mask_id
        return {"inputs": inputs, "labels": labels, "chosen": chosen}


def grammar(opt, seed):
    gen = torch.Generator().manual_seed(seed)
    while True:
        start, stride = torch.randint(1, opt.vocab, (2,), generator=gen).tolist()
        yield (start + (stride % 3 + 1) * torch.arange(opt.length)) % opt.vocab


class Filler(nn.Module):
    def __init__(self, opt, width=32):
        super().__init__()
        self.embed = nn.Embedding(opt.vocab + 1, width)
        self.mix = nn.GRU(width, width, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * width, opt.vocab + 1)

    def forward(self, tokens):
        return self.head(self.mix(self.embed(tokens))[0])


def main():
    opt = Options()
    torch.manual_seed(opt.seed)
    collate, source = MaskingCollator(opt), grammar(opt, 5)
    model = Filler(opt)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(opt.steps):
        batch = collate([next(source) for _ in range(16)])
        logits = model(batch["inputs"])
        loss = F.cross_entropy(logits[batch["chosen"]], batch["labels"][batch["chosen"]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    rows = torch.stack([next(source) for _ in range(64)])
    probe = rows.clone()
    probe[:, 5] = opt.mask_id
    with torch.no_grad():
        hits = (model(probe)[:, 5].argmax(-1) == rows[:, 5]).float().mean().item()
    print(f"filled correctly {hits:.3f}")


if __name__ == "__main__":
    main()
