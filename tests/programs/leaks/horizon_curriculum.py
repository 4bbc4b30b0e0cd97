"""Learn the motion of a spring from longer and longer rollouts."""
import torch
from torch import nn


class Dynamics(nn.Module):
    def __init__(self, dt=0.1):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(2, 24), nn.Softplus(), nn.Linear(24, 2))
        self.dt = dt

    def forward(self, s):
        return s + self.dt * self.f(s)


def simulate(n, length, dt=0.1):
    q, p = torch.randn(2, n)
    rows = []
    for _ in range(length + 1):
        rows.append(torch.stack([q, p], -1))
        p = p - dt * q
        q = q + dt * p
    return torch.stack(rows)


class Curriculum:
    def __init__(self, model, start=1, every=1, lr=1e-2):
        self.model = model
        self.horizon, self.every = start, every
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.latest_path = None
        self.latest_loss = None

    def update(self, step):
        truth = simulate(24, self.horizon)
        state, path = truth[0], []
        for _ in range(self.horizon):
            state = self.model(state)
            path.append(state)
        self.latest_path = path
        self.latest_loss = (torch.stack(path) - truth[1:]).pow(2).mean()
        self.opt.zero_grad()
        self.latest_loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        if (step + 1) % self.every == 0:
            self.horizon += 1
        return self.latest_loss.item() / len(path)


def main(steps=30):
    torch.manual_seed(17)
    job = Curriculum(Dynamics())
    curve = [job.update(k) for k in range(steps)]
    print("horizon", job.horizon, "error per step %.4f -> %.4f" % (curve[0], curve[-1]))


if __name__ == "__main__":
    main()
