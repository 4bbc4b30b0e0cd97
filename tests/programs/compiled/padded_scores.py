"""Rank candidate answers of unequal length with a masked scorer."""
import torch
from torch import nn


def pad_mask(lengths: torch.Tensor, width: int) -> torch.Tensor:
    visible = torch.zeros(width).expand(len(lengths), width)
    for row, n in enumerate(lengths.unbind()):
        visible[row].copy_((torch.arange(width) >= n) * -1e4)
    return visible


class Scorer(nn.Module):
    def __init__(self, vocab: int, dim: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.gate, self.out = nn.Linear(dim, 1), nn.Linear(dim, 1)

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.embed(tokens))
        bias = pad_mask(lengths, tokens.shape[1])
        weight = (self.gate(h).squeeze(2) + bias).softmax(1)
        return self.out((weight.unsqueeze(2) * h).sum(1)).squeeze(1)


class Questions:
    """Four candidates each; the right one holds most of the special symbol."""

    def __init__(self, seed: int) -> None:
        self.gen = torch.Generator().manual_seed(seed)

    def draw(self, width: int, count: int = 16):
        tokens = torch.randint(2, 12, (count, 4, width), generator=self.gen)
        lengths = torch.randint(3, width + 1, (count, 4), generator=self.gen)
        right = torch.randint(0, 4, (count,), generator=self.gen)
        tokens[torch.arange(count), right, :2] = 1
        tokens[torch.arange(width) >= lengths.unsqueeze(2)] = 0
        return tokens, lengths, right


def main() -> None:
    torch.manual_seed(80)
    model, questions = Scorer(12, 16), Questions(81)
    run = torch.compile(model, backend="aot_eager", dynamic=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for step in range(12):
        tokens, lengths, right = questions.draw(width=6 + step % 3 * 2)
        logits = run(tokens.flatten(0, 1), lengths.flatten()).view(-1, 4)
        loss = nn.functional.cross_entropy(logits, right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 3:
            print(f"step {step + 1} loss {loss.item():.4f}")
    with torch.no_grad():
        one = torch.tensor([[1, 1, 5, 0, 0, 0], [1, 1, 5, 7, 3, 9]])
        alone = run(one[:1], torch.tensor([3]))
        beside = run(one, torch.tensor([3, 6]))
    print(f"score alone {alone[0].item():.4f} beside another {beside[0].item():.4f}")


if __name__ == "__main__":
    main()
