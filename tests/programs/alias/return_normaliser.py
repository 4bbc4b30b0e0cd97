"""Policy-gradient toy with running normalisation of observations and rewards."""
import torch
from torch import nn


class RunningNorm:
    def __init__(self, mean=torch.zeros(1), var=torch.ones(1), count=torch.tensor(1e-4)):
        self.mean, self.var, self.count = mean, var, count

    def update(self, values):
        values = values.reshape(-1)
        n = values.numel()
        delta = values.mean() - self.mean
        total = self.count + n
        m2 = self.var * self.count + values.var(unbiased=False) * n + delta ** 2 * self.count * n / total
        self.mean += delta * n / total
        self.var.copy_(m2 / total)
        self.count += n

    def __call__(self, values):
        return (values - self.mean) / (self.var + 1e-6).sqrt()


class Bandit:
    """Contextual bandit whose observations live on a large scale."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.weights = torch.randn(4, 3, generator=self.gen)

    def observe(self, n):
        return 50.0 + 12.0 * torch.randn(n, 4, generator=self.gen)

    def reward(self, obs, actions):
        merit = ((obs - 50.0) / 12.0) @ self.weights
        return 0.01 * merit.gather(1, actions[:, None]).squeeze(1)


class Agent:
    def __init__(self):
        self.policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=0.02)
        self.obs_norm = RunningNorm()
        self.reward_norm = RunningNorm()

    def update(self, env, n=64):
        obs = env.observe(n)
        self.obs_norm.update(obs)
        dist = torch.distributions.Categorical(logits=self.policy(self.obs_norm(obs)))
        cdf = dist.probs.detach().cumsum(1)
        actions = (torch.rand(n, 1, generator=env.gen) > cdf).sum(1).clamp(max=2)
        reward = env.reward(obs, actions)
        self.reward_norm.update(reward)
        loss = -(dist.log_prob(actions) * self.reward_norm(reward)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return reward.mean().item()


def main():
    torch.manual_seed(0)
    env, agent = Bandit(3), Agent()
    history = [agent.update(env) for _ in range(150)]
    print("observation mean", [round(v, 3) for v in agent.obs_norm.mean.tolist()])
    print("reward mean     ", [round(v, 5) for v in agent.reward_norm.mean.tolist()])
    print("first rewards   ", round(sum(history[:20]) / 20, 5))
    print("last rewards    ", round(sum(history[-20:]) / 20, 5))


if __name__ == "__main__":
    main()
