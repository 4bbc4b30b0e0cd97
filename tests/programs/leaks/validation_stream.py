"""Word-level model of a long stream. After each update the model is tried on the next piece of a validation stream, state carried on."""
import torch
from torch import nn

VOCAB, WIDTH, PIECE = 14, 16, 6


class StreamModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.decode = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens, state):
        out, state = self.rnn(self.embed(tokens), state)
        return self.decode(out), state


def text(length, rows, gen):
    steps = torch.randint(1, 4, (rows, length), generator=gen)
    return steps.cumsum(1) % VOCAB


class Evaluator:
    """Reads the validation stream piece by piece; perplexity is that of the latest pieces."""

    def __init__(self, model, stream):
        self.model, self.stream, self.at = model, stream, 0
        self.state = torch.zeros(1, stream.size(0), WIDTH)
        self.nll = []

    def advance(self):
        piece = self.stream[:, self.at:self.at + PIECE + 1]
        self.model.eval()
        logits, self.state = self.model(piece[:, :-1], self.state)
        nll = nn.functional.cross_entropy(logits.flatten(0, 1), piece[:, 1:].flatten())
        self.model.train()
        self.nll.append(nll.item())
        self.at += PIECE


def repackage(state):
    return state.detach()


def fit(updates):
    gen = torch.Generator().manual_seed(17)
    train, valid = text(updates * PIECE + 1, 8, gen), text(updates * PIECE + 1, 4, gen)
    model = StreamModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    evaluator = Evaluator(model, valid)
    state = torch.zeros(1, 8, WIDTH)
    for k in range(updates):
        piece = train[:, k * PIECE:(k + 1) * PIECE + 1]
        logits, state = model(piece[:, :-1], repackage(state))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), piece[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        evaluator.advance()
    return evaluator.nll


if __name__ == "__main__":
    torch.manual_seed(0)
    nll = fit(50)
    print("validation nll", " ".join(f"{v:.4f}" for v in nll[::7]))
