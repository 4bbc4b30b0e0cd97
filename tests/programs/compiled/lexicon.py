"""Words are scored against a query, then looked up in a table that is kept within a ball."""
import torch
from torch import nn


class Lexicon(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.table = nn.Embedding(words, width, max_norm=0.5)
        self.query = nn.Linear(width, width)

    def forward(self, ids, q):
        scores = self.query(q) @ self.table.weight.T
        found = self.table(ids)
        return scores, found


def main():
    torch.manual_seed(12)
    net = Lexicon(20, 6)
    model = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        ids, q = torch.randint(20, (5,)), torch.randn(5, 6)
        scores, found = model(ids, q)
        loss = nn.functional.cross_entropy(scores, ids) + found.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


if __name__ == "__main__":
    main()
