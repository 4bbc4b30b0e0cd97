"""REINFORCE on a gliding agent; the environment keeps one observation buffer."""
import numpy as np
import torch
from torch import nn


class Glider:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.buffer = np.zeros(4, dtype=np.float32)

    def reset(self):
        self.buffer[:] = self.rng.normal(0, 1, 4)
        self.left = 10
        return self.buffer

    def step(self, action):
        self.buffer[2:] += 0.3 * np.array([action - 1, (action % 2) - 0.5], dtype=np.float32)
        self.buffer[:2] += 0.5 * self.buffer[2:]
        self.left -= 1
        return self.buffer, float(-np.abs(self.buffer[:2]).sum()), self.left == 0


class Episode:
    def __init__(self):
        self.states, self.actions, self.rewards = [], [], []

    def add(self, state, action, reward):
        self.states.append(state)
        self.actions.append(action)
        self.rewards.append(reward)

    def discounted(self, gamma=0.9):
        g, out = 0.0, []
        for r in reversed(self.rewards):
            g = r + gamma * g
            out.append(g)
        t = torch.tensor(out[::-1])
        return (t - t.mean()) / (t.std() + 1e-6)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, s):
        return self.net(s).log_softmax(-1)


def play(env, policy, gen):
    episode, done = Episode(), False
    state = torch.from_numpy(env.reset())
    while not done:
        with torch.no_grad():
            action = torch.multinomial(policy(state).exp(), 1, generator=gen).item()
        nxt, reward, done = env.step(action)
        episode.add(state, action, reward)
        state = torch.from_numpy(nxt)
    return episode


def main():
    torch.manual_seed(4)
    gen = torch.Generator().manual_seed(5)
    env, policy = Glider(0), Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for i in range(12):
        ep = play(env, policy, gen)
        logp = policy(torch.stack(ep.states))
        chosen = logp.gather(1, torch.tensor(ep.actions).unsqueeze(1)).squeeze(1)
        loss = -(chosen * ep.discounted()).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 4 == 0:
            print(f"episode {i} return {sum(ep.rewards):.6f} loss {loss.item():.6f}")
    print(f"policy {sum(p.double().abs().sum() for p in policy.parameters()).item():.6f}")


if __name__ == "__main__":
    main()
