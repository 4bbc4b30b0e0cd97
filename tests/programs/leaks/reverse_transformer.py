"""Tiny seq2seq: reverse a string of digits; attention kept for pictures."""
import math

import torch
from torch import nn


class AttentionStore:
    def __init__(self):
        self.cur_step = 0
        self.step_store = {}
        self.attention_store = {}

    def __call__(self, attn, place):
        self.step_store.setdefault(place, []).append(attn)

    def between_steps(self):
        for place, maps in self.step_store.items():
            averaged = torch.stack(maps).mean(dim=(0, 1))
            self.attention_store[(self.cur_step, place)] = averaged
        self.cur_step += 1
        self.step_store = {}

    def latest(self, place):
        return self.attention_store[(self.cur_step - 1, place)]


class Attention(nn.Module):
    def __init__(self, dim, heads, place, store):
        super().__init__()
        self.heads, self.place, self.store = heads, place, store
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        attn = (q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)).softmax(-1)
        self.store(attn.mean(1), self.place)
        return self.proj((attn @ v).transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    def __init__(self, dim, heads, place, store):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, place, store)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.mlp(self.n2(x))


class Reverser(nn.Module):
    def __init__(self, store, digits=10, length=8, dim=24, depth=2):
        super().__init__()
        self.emb = nn.Embedding(digits, dim)
        self.pos = nn.Parameter(torch.randn(length, dim) * 0.1)
        self.blocks = nn.ModuleList(Block(dim, 2, f"block{i}", store) for i in range(depth))
        self.head = nn.Linear(dim, digits)

    def forward(self, s):
        x = self.emb(s) + self.pos
        for blk in self.blocks:
            x = blk(x)
        return self.head(x)


if __name__ == "__main__":
    torch.manual_seed(0)
    store = AttentionStore()
    model = Reverser(store)
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for step in range(22):
        src = torch.randint(10, (16, 8))
        logits = model(src)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), src.flip(1).flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        store.between_steps()
        if step % 7 == 6:
            diag = store.latest("block0").flip(1).diagonal().mean().item()
            print(f"{step + 1:3d} loss {loss.item():.3f} anti-diagonal {diag:.3f}")
