"""Character-like model trained over windows of one long sequence."""
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, vocab=12, width=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.rnn = nn.LSTM(width, width)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens, state):
        out, state = self.rnn(self.embed(tokens).unsqueeze(1), state)
        return self.head(out.squeeze(1)), state


def cut(state):
    return None if state is None else tuple(s.detach() for s in state)


class WindowTrainer:
    def __init__(self, model, window):
        self.model, self.window = model, window
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        self.state = None

    def epoch(self, tokens):
        total, windows = 0.0, 0
        for i in range(0, len(tokens) - self.window - 1, self.window):
            logits, self.state = self.model(tokens[i:i + self.window], cut(self.state))
            loss = F.cross_entropy(logits, tokens[i + 1:i + self.window + 1])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total, windows = total + loss.detach(), windows + 1
        return float(total / windows)


def text(n):
    t = torch.arange(n)
    return (t * 3 + t // 7) % 12


def main():
    torch.manual_seed(0)
    trainer = WindowTrainer(Model(), 16)
    tokens = text(400)
    for epoch in range(4):
        print(f"epoch {epoch} loss {trainer.epoch(tokens):.4f}")


if __name__ == "__main__":
    main()
