"""Session recommender: masked scores, tied item table, popularity counters in the region."""
import torch
from torch import nn
from torch.nn import functional as F


class Sessions(nn.Module):
    def __init__(self, items: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(items, dim)
        self.rnn = nn.Linear(2 * dim, dim)
        self.register_buffer("seen", torch.zeros(items))

    def encode(self, clicks: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(len(clicks), self.table.embedding_dim)
        for item in clicks.unbind(1):
            h = torch.tanh(self.rnn(torch.cat([h, self.table(item)], 1)))
        return h

    def forward(self, clicks: torch.Tensor) -> torch.Tensor:
        scores = self.encode(clicks) @ self.table.weight.T
        scores.scatter_(1, clicks, -1e4)
        scores /= 0.5
        with torch.no_grad():
            flat = clicks.flatten()
            self.seen.index_add_(0, flat, torch.ones(flat.shape))
        return scores


@torch.compile(backend="aot_eager")
def popularity(seen: torch.Tensor) -> torch.Tensor:
    share = seen.clone()
    share /= share.sum()
    return share.clamp_(min=1e-6).log_()


def batch(gen: torch.Generator, items: int, count: int = 32):
    start = torch.randint(0, items, (count, 1), generator=gen)
    walk = (start + torch.arange(5) * 3) % items
    return walk[:, :4], walk[:, 4]


def main() -> None:
    torch.manual_seed(140)
    gen, items = torch.Generator().manual_seed(141), 40
    model = Sessions(items, 16)
    run = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    for step in range(25):
        clicks, following = batch(gen, items)
        scores = run(clicks)
        loss = F.cross_entropy(scores, following) - 0.01 * popularity(model.seen)[following].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    model.eval()
    with torch.no_grad():
        clicks, following = batch(gen, items, 200)
        top = run(clicks).topk(3, dim=1).indices
    print(f"hit@3 {(top == following[:, None]).any(1).float().mean().item():.3f}")


if __name__ == "__main__":
    main()
