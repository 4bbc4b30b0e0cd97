import argparse

import torch
from torch import nn
from torch.autograd import grad


class Field(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
                                  nn.Linear(width, 1))

    def forward(self, x, t):
        return self.body(torch.cat([x, t], dim=1))


class LossBalancer:
    """Scales every term by the inverse of its smoothed magnitude."""

    def __init__(self, names, beta=0.9):
        self.beta = beta
        self.smooth = {n: None for n in names}

    def __call__(self, terms):
        total = 0.0
        for name, value in terms.items():
            old = self.smooth[name]
            new = value if old is None else self.beta * old + (1.0 - self.beta) * value
            self.smooth[name] = new
            total = total + value / (float(new) + 1e-6)
        return total

    def weights(self):
        return {k: 1.0 / (float(v) + 1e-6) for k, v in self.smooth.items()}


def residual(u, x, t, alpha):
    out = u(x, t)
    u_t, = grad(out.sum(), t, create_graph=True)
    u_x, = grad(out.sum(), x, create_graph=True)
    u_xx, = grad(u_x.sum(), x, create_graph=True)
    return u_t - alpha * u_xx


def main(argv=None):
    ap = argparse.ArgumentParser(description="1-D heat equation")
    ap.add_argument("--alpha", type=float, default=0.1)
    ap.add_argument("--points", type=int, default=40)
    ap.add_argument("--width", type=int, default=16)
    ap.add_argument("--iters", type=int, default=20)
    a = ap.parse_args(argv)

    torch.manual_seed(3)
    u = Field(a.width)
    opt = torch.optim.Adam(u.parameters(), lr=3e-3)
    balance = LossBalancer(("pde", "start", "edge"))
    for i in range(a.iters):
        x = torch.rand(a.points, 1, requires_grad=True)
        t = torch.rand(a.points, 1, requires_grad=True)
        x0 = torch.rand(a.points, 1)
        side = torch.randint(2, (a.points, 1)).float()
        terms = {
            "pde": residual(u, x, t, a.alpha).pow(2).mean(),
            "start": (u(x0, torch.zeros_like(x0)) - torch.sin(torch.pi * x0)).pow(2).mean(),
            "edge": u(side, torch.rand(a.points, 1)).pow(2).mean(),
        }
        objective = balance(terms)
        opt.zero_grad()
        objective.backward()
        opt.step()
        if i % 5 == 4:
            print(i + 1, {k: f"{v.item():.4f}" for k, v in terms.items()})
    print({k: round(v, 2) for k, v in balance.weights().items()})


if __name__ == "__main__":
    main()
