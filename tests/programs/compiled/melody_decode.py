"""Sampling note sequences from a small causal decoder with a preallocated key/value cache."""
import torch
from torch import nn
from torch.nn import functional as F


class CachedAttention(nn.Module):
    def __init__(self, dim: int, heads: int, batch: int, limit: int) -> None:
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        shape = (batch, heads, limit, self.size)
        self.register_buffer("keys", torch.zeros(shape), persistent=False)
        self.register_buffer("values", torch.zeros(shape), persistent=False)

    def forward(self, x: torch.Tensor, start: int) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        self.keys[:, :, start : start + t] = k
        self.values[:, :, start : start + t] = v
        scores = q @ self.keys[:, :, : start + t].transpose(2, 3) / self.size**0.5
        row = torch.arange(t)[:, None] + start
        scores.masked_fill_(torch.arange(start + t)[None] > row, float("-inf"))
        mixed = scores.softmax(-1) @ self.values[:, :, : start + t]
        return self.out(mixed.transpose(1, 2).reshape(b, t, d))


class Decoder(nn.Module):
    def __init__(self, notes: int, dim: int, batch: int, limit: int) -> None:
        super().__init__()
        self.note = nn.Embedding(notes, dim)
        self.place = nn.Embedding(limit, dim)
        self.attn = nn.ModuleList(CachedAttention(dim, 2, batch, limit) for _ in range(2))
        self.head = nn.Linear(dim, notes)

    def forward(self, tokens: torch.Tensor, start: int) -> torch.Tensor:
        h = self.note(tokens) + self.place(torch.arange(start, start + tokens.shape[1]))
        for layer in self.attn:
            h += layer(F.layer_norm(h, h.shape[-1:]), start)
        return self.head(h[:, -1])


def generate(step, prompt: torch.Tensor, length: int) -> torch.Tensor:
    tokens, start = prompt, 0
    pieces = [prompt]
    for _ in range(length):
        logits = step(tokens, start)
        start += tokens.shape[1]
        tokens = logits.argmax(-1, keepdim=True)
        pieces.append(tokens)
    return torch.cat(pieces, 1)


@torch.no_grad()
def main() -> None:
    torch.manual_seed(12)
    decoder = Decoder(notes=24, dim=32, batch=3, limit=20).eval()
    prompt = torch.randint(0, 24, (3, 5))
    step = torch.compile(decoder, backend="aot_eager", dynamic=True)
    melody = generate(step, prompt, 10)
    for row in melody.tolist():
        print(" ".join(f"{n:2d}" for n in row))
    whole = decoder(melody[:, :-1], 0).argmax(-1)
    print("agrees with a full pass:", bool((whole == melody[:, -1]).all()))


if __name__ == "__main__":
    main()
