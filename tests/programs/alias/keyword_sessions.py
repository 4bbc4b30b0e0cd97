"""Streaming keyword scores for several speakers at a time."""
import torch
from torch import nn


class LeakyCell(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.drive = nn.Linear(inputs, width)
        self.recur = nn.Linear(width, width, bias=False)
        self.leak = 0.3

    def forward(self, frame, state):
        fresh = torch.tanh(self.drive(frame) + self.recur(state))
        return state.mul_(1 - self.leak).add_(fresh, alpha=self.leak)


class Spotter(nn.Module):
    def __init__(self, inputs=6, width=20, words=3):
        super().__init__()
        self.cell = LeakyCell(inputs, width)
        self.out = nn.Linear(width, words)
        self.register_buffer("initial", torch.zeros(width))

    def new_state(self):
        return self.initial

    def forward(self, frame, state):
        state = self.cell(frame, state)
        return self.out(state).softmax(-1), state


class Session:
    def __init__(self, spotter, name):
        self.spotter, self.name = spotter, name
        self.state = spotter.new_state()
        self.scores = []

    @torch.inference_mode()
    def feed(self, frame):
        probs, self.state = self.spotter(frame, self.state)
        self.scores.append([round(v, 4) for v in probs.tolist()])


def utterances(names, frames, gen):
    return {n: torch.randn(frames, 6, generator=gen) + i for i, n in enumerate(names)}


def main():
    torch.manual_seed(5)
    gen = torch.Generator().manual_seed(6)
    spotter = Spotter().eval()
    audio = utterances(["ana", "bo", "cy"], 12, gen)
    sessions = {n: Session(spotter, n) for n in audio}
    for t in range(12):
        for name, session in sessions.items():
            session.feed(audio[name][t])
    for name, session in sessions.items():
        print(name, session.scores[0], session.scores[-1])
    again = Session(spotter, "ana")
    for frame in audio["ana"]:
        again.feed(frame)
    print("ana alone", again.scores[-1])


if __name__ == "__main__":
    main()
