"""Language model with tied embeddings and a padding row that is kept at zero."""
import torch
import torch.nn.functional as F
from torch import nn


class Tied(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])

    @torch.no_grad()
    def clean_padding(self):
        self.embed.weight[0].zero_()


class Tracker:
    def __init__(self, weight):
        self.weight = weight
        self.before = weight.detach().clone()

    def moved(self):
        out = (self.weight.detach() - self.before).norm().item()
        self.before.copy_(self.weight.detach())
        return out


def batch(gen, n=12, length=9):
    start = torch.randint(1, 15, (n, 1), generator=gen)
    tokens = (start + torch.arange(length)) % 15 + 1
    lengths = torch.randint(5, length + 1, (n, 1), generator=gen)
    tokens.masked_fill_(torch.arange(length)[None] >= lengths, 0)
    return tokens


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(8)
    net = Tied(16, 20)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
    tracker = Tracker(net.embed.weight)
    for step in range(80):
        tokens = batch(gen)
        logits = net(tokens[:, :-1])
        loss = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        net.clean_padding()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} moved {tracker.moved():.4f}")
    same = net.head.weight is net.embed.weight
    print("tied", same, "padding norm", net.embed.weight[0].norm().item())


if __name__ == "__main__":
    main()
