"""Actor and critic updated at the end of each episode."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 24), nn.Tanh())
        self.pi, self.v = nn.Linear(24, 2), nn.Linear(24, 1)
        self.saved = []

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def drift(state, action):
    new = state * 0.9 + torch.tensor([0.1, 0.05, -0.02]) * (1 if action else -1)
    return new, -new.pow(2).sum().item()


def finish(net, optimizer, rewards, gamma=0.9):
    value, returns = 0.0, []
    for r in reversed(rewards):
        value = r + gamma * value
        returns.insert(0, value)
    returns = torch.tensor(returns)
    log_probs = torch.stack([s[0] for s in net.saved])
    values = torch.stack([s[1] for s in net.saved])
    loss = -(log_probs * (returns - values.detach())).sum() + F.smooth_l1_loss(values, returns)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del net.saved[:]
    return loss.item()


def main():
    torch.manual_seed(9)
    gen = torch.Generator().manual_seed(3)
    net = ActorCritic()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for episode in range(40):
        state, rewards = torch.randn(3, generator=gen), []
        for _ in range(10):
            dist, value = net(state)
            action = dist.sample()
            net.saved.append((dist.log_prob(action), value))
            state, reward = drift(state, action.item())
            rewards.append(reward)
        loss = finish(net, optimizer, rewards)
        if episode % 10 == 9:
            print(f"episode {episode} loss {loss:.4f} return {sum(rewards):.4f}")


if __name__ == "__main__":
    main()
