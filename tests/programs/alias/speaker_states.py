"""Streaming scores; the states of all open sessions are rows of one table."""
import torch
from torch import nn


class StateTable:
    def __init__(self, rows, width):
        self.table = torch.zeros(rows, width)
        self.free = list(range(rows))[::-1]

    def open(self):
        row = self.free.pop()
        self.table[row].zero_()
        return row, self.table[row]

    def close(self, row):
        self.free.append(row)


class Cell(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.mix = nn.Linear(inputs + width, width)
        self.out = nn.Linear(width, 2)

    @torch.no_grad()
    def forward(self, frame, state):
        fresh = torch.tanh(self.mix(torch.cat([frame, state])))
        state.lerp_(fresh, 0.25)
        return self.out(state).softmax(0)


class Session:
    def __init__(self, cell, table):
        self.cell, self.table = cell, table
        self.row, self.state = table.open()
        self.scores = []

    def feed(self, frame):
        self.scores.append(self.cell(frame, self.state)[0].item())

    def end(self):
        self.table.close(self.row)
        return sum(self.scores) / len(self.scores)


def main():
    torch.manual_seed(1)
    gen = torch.Generator().manual_seed(2)
    cell, table = Cell(4, 10).eval(), StateTable(3, 10)
    audio = torch.randn(5, 20, 4, generator=gen) + torch.arange(5).view(5, 1, 1)
    open_sessions, waiting, results = {}, list(range(5)), {}
    clock = 0
    while waiting or open_sessions:
        while waiting and table.free:
            who = waiting.pop(0)
            open_sessions[who] = (Session(cell, table), clock)
        for who, (session, began) in list(open_sessions.items()):
            session.feed(audio[who, clock - began])
            if clock - began == 19 - 3 * who:
                results[who] = session.end()
                del open_sessions[who]
        clock += 1
    print({k: round(v, 5) for k, v in sorted(results.items())}, "ticks", clock)


if __name__ == "__main__":
    main()
