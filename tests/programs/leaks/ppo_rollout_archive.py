"""PPO on a one-dimensional set-point task; everything sampled is archived for a later offline study."""
import numpy as np
import torch
from torch import nn, optim


class GaussianActor(nn.Module):
    def __init__(self):
        super().__init__()
        self.mu = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        self.log_std = nn.Parameter(torch.full((1,), -0.5))

    def dist(self, obs):
        return torch.distributions.Normal(self.mu(obs).squeeze(-1), self.log_std.exp())


class Archive:
    def __init__(self):
        self.rows = []

    def add(self, **kw):
        self.rows.append({k: v.detach().cpu() if torch.is_tensor(v) else v for k, v in kw.items()})

    def export(self):
        return {k: np.concatenate([np.atleast_1d(r[k]) for r in self.rows]) for k in self.rows[0]}


def play(actor, n=32):
    obs = torch.rand(n, 2) * 2 - 1
    dist = actor.dist(obs)
    act = dist.sample()
    rew = -(act - obs[:, 0] * obs[:, 1]).abs()
    return obs, act, rew, dist.log_prob(act)


def main():
    torch.manual_seed(14)
    actor, archive = GaussianActor(), Archive()
    opt = optim.Adam(actor.parameters(), lr=1e-2)
    returns = []
    for it in range(9):
        obs, act, rew, logp = play(actor)
        old = logp.detach()
        adv = (rew - rew.mean()) / (rew.std() + 1e-6)
        archive.add(obs=obs[:, 0], act=act, rew=rew, logp=logp)
        for _ in range(4):
            ratio = (actor.dist(obs).log_prob(act) - old).exp()
            surrogate = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv)
            loss = -surrogate.mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            archive.add(obs=obs[:, 0], act=act, rew=rew, logp=ratio)
        returns.append(rew.mean())
    data = archive.export()
    print("mean reward", [round(r.item(), 3) for r in returns[::4]], "archived", data["act"].shape[0])


if __name__ == "__main__":
    main()
