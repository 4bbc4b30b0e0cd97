"""Character model with a rolling memory of hidden states, trained over several segments at once."""
import torch
from torch import nn
from torch.nn import functional as F

TEXT = "the cat sat on the mat and the dog sat on the log while the rain fell on the town "


class MemoryLM(nn.Module):
    def __init__(self, vocab: int, dim: int, batch: int, span: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.q, self.kv = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
        self.head = nn.Linear(dim, vocab)
        self.register_buffer("memory", torch.zeros(batch, span, dim), persistent=False)

    def remember(self, h: torch.Tensor) -> None:
        span = min(h.shape[1], self.memory.shape[1])
        with torch.no_grad():
            self.memory.copy_(self.memory.roll(-span, 1))
            self.memory[:, -span:] = h[:, -span:]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.embed(tokens)
        context = torch.cat([self.memory, h], 1)
        k = F.linear(self.memory, self.kv.weight, self.kv.bias)
        k = torch.cat([k, self.kv(h)], 1)
        key, value = k.chunk(2, -1)
        width = context.shape[1]
        visible = torch.ones(h.shape[1], width, dtype=torch.bool).tril(self.memory.shape[1])
        out = F.scaled_dot_product_attention(self.q(h), key, value, attn_mask=visible)
        return self.head(h + out), h


class Segments:
    """Segments of varying length cut from a few parallel streams."""

    def __init__(self, batch: int) -> None:
        self.symbols = sorted(set(TEXT))
        ids = torch.tensor([self.symbols.index(c) for c in TEXT * 4])
        self.rows = torch.stack([ids.roll(-7 * i) for i in range(batch)])
        self.at = 0

    def take(self, length: int):
        piece = self.rows[:, self.at : self.at + length + 1]
        self.at = (self.at + length) % (self.rows.shape[1] - 24)
        return piece[:, :-1], piece[:, 1:]


def main() -> None:
    torch.manual_seed(50)
    data = Segments(batch=4)
    model = MemoryLM(len(data.symbols), 24, 4, span=8)
    run = torch.compile(model, backend="aot_eager", dynamic=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for update in range(4):
        total = torch.zeros(())
        for length in (8, 12, 10):
            tokens, following = data.take(length)
            logits, hidden = run(tokens)
            total = total + F.cross_entropy(logits.flatten(0, 1), following.flatten())
            model.remember(hidden)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        print(f"update {update} loss {total.item() / 3:.4f}")


if __name__ == "__main__":
    main()
