"""Fit spring constants of a small chain to an observed trajectory."""
import torch
from torch import nn


class Chain(nn.Module):
    def __init__(self, masses=5):
        super().__init__()
        self.log_k = nn.Parameter(torch.zeros(masses - 1))
        self.log_damp = nn.Parameter(torch.tensor(-1.5))

    def force(self, pos, vel):
        gap = pos[1:] - pos[:-1] - 1.0
        pull = self.log_k.exp() * (gap + 0.3 * gap**3)
        total = torch.zeros_like(pos)
        total[:-1] = pull
        total[1:] = total[1:] - pull
        return total - self.log_damp.exp() * vel - 0.1 * pos**2


class Integrator:
    """Semi-implicit Euler; returns the positions after every step."""

    def __init__(self, system, dt=0.1):
        self.system, self.dt = system, dt

    def roll(self, pos, vel, steps):
        pos, vel = pos.clone(), vel.clone()
        track = []
        for _ in range(steps):
            vel = vel + self.dt * self.system.force(pos, vel)
            pos += self.dt * vel
            track.append(pos)
        return torch.stack(track)


def observed(start, speed, steps):
    truth = Chain()
    with torch.no_grad():
        truth.log_k.copy_(torch.tensor([0.8, -0.3, 0.5, 0.1]))
        truth.log_damp.fill_(-0.7)
        pos, vel, rows = start.clone(), speed.clone(), []
        for _ in range(steps):
            vel = vel + 0.1 * truth.force(pos, vel)
            pos = pos + 0.1 * vel
            rows.append(pos)
    return torch.stack(rows)


def main():
    torch.manual_seed(0)
    start = torch.arange(5.0) + 0.4 * torch.randn(5)
    speed = 0.2 * torch.randn(5)
    target = observed(start, speed, 25)
    model = Chain()
    solver = Integrator(model)
    opt = torch.optim.Adam(model.parameters(), lr=0.05)
    for it in range(30):
        path = solver.roll(start, speed, 25)
        loss = (path - target).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 10 == 0:
            print(f"it {it} loss {loss.item():.6f} travelled {(path[-1] - path[0]).abs().sum().item():.6f}")
    print("log k", " ".join(f"{v:.6f}" for v in model.log_k.tolist()), f"damp {model.log_damp.item():.6f}")


if __name__ == "__main__":
    main()
