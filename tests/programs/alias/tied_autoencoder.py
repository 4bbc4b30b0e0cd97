"""Autoencoder with tied weights, an averaged copy and the best checkpoint kept."""
import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    dim: int = 20
    code: int = 4
    epochs: int = 30
    decay: float = 0.9
    lr: float = 0.05


class SharedMatrixAutoencoder(nn.Module):
    def __init__(self, dim, code):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(code, dim))
        self.b_in, self.b_out = nn.Parameter(torch.zeros(code)), nn.Parameter(torch.zeros(dim))
        nn.init.xavier_uniform_(self.weight)
        self.views = {"encode": self.weight, "decode": self.weight.detach().t()}

    def forward(self, x):
        return F.linear(torch.tanh(F.linear(x, self.weight, self.b_in)), self.weight.t(), self.b_out)


class Average:
    def __init__(self, model, decay):
        self.module = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.module.parameters(), model.parameters()):
            mine.mul_(self.decay).add_(theirs, alpha=1 - self.decay)


def factors(n, dim, gen):
    return torch.randn(n, 3, generator=gen) @ torch.randn(3, dim, generator=gen) + 0.1 * torch.randn(n, dim, generator=gen)


def main():
    cfg = Config()
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(3)
    data = factors(96, cfg.dim, gen)
    train, val = data[:64], data[64:]
    mean = train.mean(0)
    train -= mean
    val -= mean
    model = SharedMatrixAutoencoder(cfg.dim, cfg.code)
    average = Average(model, cfg.decay)
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9)
    best, best_state = float("inf"), None
    for epoch in range(cfg.epochs):
        opt.zero_grad()
        loss = F.mse_loss(model(train), train)
        loss.backward()
        opt.step()
        average.update(model)
        with torch.no_grad():
            score = F.mse_loss(model(val), val).item()
        if score < best:
            best, best_state = score, {k: v.clone() for k, v in model.state_dict().items()}
        if epoch % 10 == 9:
            live = model.views["decode"].norm().item()
            print(f"epoch {epoch} loss {loss.item():.4f} val {score:.4f} live norm {live:.4f}")
    with torch.no_grad():
        print("averaged", round(F.mse_loss(average.module(val), val).item(), 4))
        model.load_state_dict(best_state)
        print("restored", round(F.mse_loss(model(val), val).item(), 4), "best", round(best, 4))


if __name__ == "__main__":
    main()
