"""Regression with early stopping and restoration of the best weights."""
import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class EarlyStopping:
    patience: int
    best: float = math.inf
    waited: int = 0
    weights: dict = field(default_factory=dict)
    best_epoch: int = -1

    def update(self, epoch, score, model):
        if score < self.best - 1e-5:
            self.best, self.waited, self.best_epoch = score, 0, epoch
            self.weights = {k: v.cpu() for k, v in model.state_dict().items()}
        else:
            self.waited += 1
        return self.waited >= self.patience

    def restore(self, model):
        model.load_state_dict(self.weights)


class Data:
    def __init__(self, seed):
        gen = torch.Generator().manual_seed(seed)
        self.x = torch.rand(60, 1, generator=gen) * 6 - 3
        self.y = torch.sin(self.x) + 0.4 * torch.randn(60, 1, generator=gen)
        self.train = (self.x[:20], self.y[:20])
        self.val = (self.x[20:], self.y[20:])


def build():
    return nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))


def validate(model, data):
    with torch.no_grad():
        return F.mse_loss(model(data.val[0]), data.val[1]).item()


def fit(model, data, epochs, stopper):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        for _ in range(10):
            optimizer.zero_grad()
            F.mse_loss(model(data.train[0]), data.train[1]).backward()
            optimizer.step()
        if stopper.update(epoch, validate(model, data), model):
            break
    return epoch


def main():
    torch.manual_seed(1)
    data = Data(seed=7)
    model = build()
    stopper = EarlyStopping(patience=8)
    last = fit(model, data, 60, stopper)
    stopper.restore(model)
    print(f"stopped at {last}, best epoch {stopper.best_epoch}")
    print(f"best validation loss     {stopper.best:.5f}")
    print(f"restored validation loss {validate(model, data):.5f}")


if __name__ == "__main__":
    main()
