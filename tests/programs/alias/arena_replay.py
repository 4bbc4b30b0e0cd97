"""Replay memory over an arena that reuses its observation tensor."""
import torch
import torch.nn.functional as F
from torch import nn


class Arena:
    """Point mass; `observe` always returns the same tensor, refreshed by `step`."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.view = torch.zeros(4)

    def reset(self):
        self.view.copy_(torch.randn(4, generator=self.gen))
        return self.view

    def step(self, action):
        self.view[:2] += 0.1 * self.view[2:]
        self.view[2:] += (0.2 if action else -0.2) - 0.05 * self.view[2:]
        return self.view, -self.view[:2].pow(2).sum().item()


class Replay:
    def __init__(self, size, dim, seed):
        self.obs = torch.empty(size, dim)
        self.nxt = torch.empty(size, dim)
        self.act = torch.empty(size, dtype=torch.long)
        self.rew = torch.empty(size)
        self.gen = torch.Generator().manual_seed(seed)
        self.count, self.size = 0, size

    def begin(self, obs):
        self.obs[self.count % self.size].copy_(obs)

    def finish(self, action, reward, nxt):
        row = self.count % self.size
        self.act[row], self.rew[row] = action, reward
        self.nxt[row].copy_(nxt)
        self.count += 1

    def sample(self, n):
        rows = torch.randint(min(self.count, self.size), (n,), generator=self.gen)
        return self.obs[rows], self.act[rows], self.rew[rows], self.nxt[rows]


def update(net, optimizer, batch, gamma=0.9):
    obs, act, rew, nxt = batch
    with torch.no_grad():
        target = net(nxt).amax(1).mul_(gamma).add_(rew)
    loss = F.smooth_l1_loss(net(obs).gather(1, act[:, None]).squeeze(1), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    arena, memory = Arena(1), Replay(200, 4, 2)
    net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(inplace=True), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for episode in range(8):
        obs, losses = arena.reset(), []
        for t in range(50):
            with torch.no_grad():
                action = int(net(obs).argmax()) if (t + episode) % 4 else t % 2
            memory.begin(obs)
            obs, reward = arena.step(action)
            memory.finish(action, reward, obs)
            if memory.count > 32:
                losses.append(update(net, optimizer, memory.sample(32)))
        print(episode, round(sum(losses) / len(losses), 5))
    print("moved", round((memory.obs - memory.nxt).abs().mean().item(), 5))


if __name__ == "__main__":
    main()
