"""Batched point-mass environment and a tiny off-policy collector for a dynamics model."""
import numpy as np
import torch
import torch.nn as nn
from collections import deque
from typing import Dict, NamedTuple


class Transition(NamedTuple):
    obs: Dict[str, torch.Tensor]
    act: torch.Tensor
    rew: torch.Tensor
    obs_next: Dict[str, torch.Tensor]


class PointMassVec:
    """N point masses simulated with NumPy; observations live in preallocated arrays."""

    def __init__(self, n, dt=0.1, seed=0):
        self.n, self.dt = n, dt
        self.rng = np.random.default_rng(seed)
        self._obs = {
            "pos": np.zeros((n, 2), dtype=np.float32),
            "vel": np.zeros((n, 2), dtype=np.float32),
        }

    def reset(self):
        self._obs["pos"][:] = self.rng.normal(size=(self.n, 2))
        self._obs["vel"][:] = 0.0
        return self._obs

    def step(self, action):
        self._obs["vel"] += self.dt * action
        self._obs["pos"] += self.dt * self._obs["vel"]
        reward = -np.linalg.norm(self._obs["pos"], axis=1)
        return self._obs, reward.astype(np.float32)


def to_torch(obs):
    return {k: torch.from_numpy(v) for k, v in obs.items()}


class Collector:
    def __init__(self, env, capacity=200):
        self.env = env
        self.memory = deque(maxlen=capacity)
        self.obs = to_torch(env.reset())

    def collect(self, steps, policy):
        for _ in range(steps):
            act = policy(self.obs)
            nxt, rew = self.env.step(act.numpy())
            nxt = to_torch(nxt)
            self.memory.append(Transition(self.obs, act, torch.from_numpy(rew), nxt))
            self.obs = nxt

    def tensors(self):
        flat = lambda o: torch.cat([o["pos"], o["vel"]], dim=-1)
        s = torch.cat([flat(t.obs) for t in self.memory])
        a = torch.cat([t.act for t in self.memory])
        s2 = torch.cat([flat(t.obs_next) for t in self.memory])
        return s, a, s2


def pd_policy(obs):
    return -1.2 * obs["pos"] - 0.8 * obs["vel"] + 0.3 * torch.randn_like(obs["pos"])


def fit_dynamics(s, a, s2, epochs=60):
    net = nn.Sequential(nn.Linear(s.shape[1] + a.shape[1], 32), nn.ReLU(), nn.Linear(32, s.shape[1]))
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(epochs):
        loss = (net(torch.cat([s, a], -1)) - (s2 - s)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return net, loss.item()


def main():
    torch.manual_seed(0)
    env = PointMassVec(n=8)
    col = Collector(env)
    col.collect(40, pd_policy)
    s, a, s2 = col.tensors()
    net, loss = fit_dynamics(s, a, s2)
    print("transitions:", tuple(s.shape), "mean step size:", round((s2 - s).norm(dim=1).mean().item(), 5))
    print("distinct states:", len(torch.unique(s, dim=0)))
    print(f"final model loss {loss:.6f}")


if __name__ == "__main__":
    main()
