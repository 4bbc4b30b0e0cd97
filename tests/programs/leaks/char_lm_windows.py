import torch
from torch import nn

TEXT = ("the quick brown fox jumps over the lazy dog and the dog sleeps while the fox runs home " * 12)


class CharRNN(nn.Module):
    def __init__(self, n, emb=12, hid=32):
        super().__init__()
        self.hid = hid
        self.emb = nn.Embedding(n, emb)
        self.cell = nn.LSTMCell(emb, hid)
        self.out = nn.Linear(hid, n)

    def forward(self, ch, state):
        h, c = self.cell(self.emb(ch), state)
        return self.out(h), (h, c)

    def init_state(self, lanes):
        return torch.zeros(lanes, self.hid), torch.zeros(lanes, self.hid)


def repackage(state):
    return tuple(s.detach() for s in state)


def batchify(ids, lanes):
    n = len(ids) // lanes
    return ids[: n * lanes].view(lanes, n).t()


class Truncated:
    def __init__(self, model, window=6, lr=8e-3):
        self.model, self.window = model, window
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.crit = nn.CrossEntropyLoss()
        self.window_losses, self.states, self.curve = [], [], []

    def feed(self, now, nxt, state):
        logits, state = self.model(now, state)
        self.window_losses.append(self.crit(logits, nxt))
        self.states.append(state)
        if len(self.window_losses) == self.window:
            state = self.update()
        return state

    def update(self):
        loss = torch.stack(self.window_losses).mean()
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.curve.append(loss.item())
        last = repackage(self.states[-1])
        self.window_losses, self.states = [], []
        return last


def main():
    torch.manual_seed(0)
    chars = sorted(set(TEXT))
    ids = torch.tensor([chars.index(c) for c in TEXT])
    data = batchify(ids, 7)[:145]
    model = CharRNN(len(chars))
    learner = Truncated(model)
    state = model.init_state(data.size(1))
    for t in range(data.size(0) - 1):
        state = learner.feed(data[t], data[t + 1], state)
    c = learner.curve
    print("updates", len(c), "first", round(c[0], 3), "last", round(sum(c[-4:]) / 4, 3))


if __name__ == "__main__":
    main()
