"""Fits a damped oscillator's parameters and keeps learning curves of several runs."""
import numpy as np
import torch
from torch import nn


class Oscillator(nn.Module):
    def __init__(self, damping, freq):
        super().__init__()
        self.damping = nn.Parameter(torch.tensor(float(damping)))
        self.freq = nn.Parameter(torch.tensor(float(freq)))
        self.amp = nn.Parameter(torch.tensor(1.0))

    def forward(self, t):
        return self.amp * torch.exp(-self.damping * t) * torch.cos(self.freq * t)


class Curves:
    """A runs x steps table of anything that has a float value."""

    def __init__(self, runs, steps):
        self.cells = np.empty((runs, steps), dtype=object)

    def set(self, run, step, value):
        self.cells[run, step] = value

    def best(self):
        filled = self.cells.astype(np.float64)
        run = int(filled[:, -1].argmin())
        return run, filled[run, -1]

    def auc(self):
        return self.cells.astype(np.float64).mean(axis=1)


def observe(seed=0):
    gen = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 4, 80)
    y = 1.4 * torch.exp(-0.6 * t) * torch.cos(2.5 * t)
    return t, y + 0.02 * torch.randn(80, generator=gen)


def fit_one(run, start, curves, steps):
    t, y = observe()
    model = Oscillator(*start)
    opt = torch.optim.Adam(model.parameters(), lr=0.05)
    for step in range(steps):
        misfit = (model(t) - y).square().mean()
        opt.zero_grad()
        misfit.backward()
        opt.step()
        curves.set(run, step, misfit)
    return model


def main():
    torch.manual_seed(0)
    starts = [(0.1, 1.5), (0.5, 3.0), (1.0, 2.0)]
    curves = Curves(len(starts), 30)
    models = [fit_one(i, s, curves, 30) for i, s in enumerate(starts)]
    run, err = curves.best()
    print(f"best start {starts[run]} error {err:.5f} freq {models[run].freq.item():.3f}")
    print("mean error by run", np.round(curves.auc(), 4))


if __name__ == "__main__":
    main()
