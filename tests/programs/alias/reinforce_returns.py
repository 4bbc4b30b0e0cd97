"""REINFORCE with elite episodes on a cliff grid; returns are computed with NumPy."""
from dataclasses import dataclass
from typing import List
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


@dataclass
class Episode:
    states: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor

    @property
    def score(self):
        return self.rewards.sum().item()


class Cliff:
    H, W = 3, 6
    MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self, limit=30):
        self.limit = limit

    def reset(self):
        self.r, self.c, self.t = self.H - 1, 0, 0
        return self.r * self.W + self.c

    def step(self, a):
        dr, dc = self.MOVES[a]
        self.r = min(max(self.r + dr, 0), self.H - 1)
        self.c = min(max(self.c + dc, 0), self.W - 1)
        self.t += 1
        reward, done = -0.1, self.t >= self.limit
        if self.r == self.H - 1 and 0 < self.c < self.W - 1:
            reward, done = -2.0, True
        elif (self.r, self.c) == (self.H - 1, self.W - 1):
            reward, done = 3.0, True
        return self.r * self.W + self.c, reward, done


def discounted(rewards, gamma):
    out = np.asarray(rewards)
    for t in range(len(out) - 2, -1, -1):
        out[t] += gamma * out[t + 1]
    return torch.from_numpy(out)


class Policy(nn.Module):
    def __init__(self, states, actions=4):
        super().__init__()
        self.logits = nn.Embedding(states, actions)
        nn.init.zeros_(self.logits.weight)

    def forward(self, s):
        return Categorical(logits=self.logits(s))


def play(env, policy):
    s, done, S, A, R = env.reset(), False, [], [], []
    with torch.no_grad():
        while not done:
            a = policy(torch.tensor(s)).sample().item()
            nxt, r, done = env.step(a)
            S.append(s), A.append(a), R.append(r)
            s = nxt
    return Episode(torch.tensor(S), torch.tensor(A), torch.tensor(R))


def update(policy, opt, episodes: List[Episode], gamma):
    returns = [discounted(e.rewards, gamma) for e in episodes]
    flat = torch.cat(returns)
    flat = (flat - flat.mean()) / (flat.std() + 1e-6)
    logp = torch.cat([policy(e.states).log_prob(e.actions) for e in episodes])
    loss = -(logp * flat).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def main():
    torch.manual_seed(3)
    env = Cliff()
    policy = Policy(env.H * env.W)
    opt = torch.optim.Adam(policy.parameters(), lr=0.1)
    elite: List[Episode] = []
    for it in range(12):
        batch = [play(env, policy) for _ in range(8)]
        loss = update(policy, opt, batch + elite, gamma=0.95)
        elite = sorted(elite + batch, key=lambda e: e.score, reverse=True)[:2]
        if it % 4 == 3:
            mean = sum(e.score for e in batch) / len(batch)
            print(f"iter {it + 1} loss {loss:.4f} mean score {mean:.3f} elite {[round(e.score, 3) for e in elite]}")
    print("elite lengths", [len(e.actions) for e in elite])


if __name__ == "__main__":
    main()
