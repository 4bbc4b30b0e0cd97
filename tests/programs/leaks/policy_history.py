"""Episodic policy gradient on a small corridor."""
from collections import deque, namedtuple

import torch
from torch import nn
from torch.distributions import Categorical

Step = namedtuple("Step", "log_prob reward")


class Corridor:
    def __init__(self, length):
        self.length = length

    def reset(self):
        self.at, self.t = 2, 0
        return self.observe()

    def observe(self):
        out = torch.zeros(self.length)
        out[self.at] = 1.0
        return out

    def step(self, action):
        self.at = min(max(self.at + (1 if action else -1), 0), self.length - 1)
        self.t += 1
        done = self.at == self.length - 1 or self.t >= 12
        return self.observe(), 1.0 if self.at == self.length - 1 else -0.05, done


class Agent:
    def __init__(self, length):
        self.policy = nn.Sequential(nn.Linear(length, 16), nn.Tanh(), nn.Linear(16, 2))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=0.02)
        self.steps = deque()

    def act(self, obs):
        dist = Categorical(logits=self.policy(obs))
        action = dist.sample()
        return action, dist.log_prob(action)

    def remember(self, log_prob, reward):
        self.steps.append(Step(log_prob, reward))

    def learn(self, length, gamma=0.95):
        episode = list(self.steps)[-length:]
        value, terms = 0.0, []
        for step in reversed(episode):
            value = step.reward + gamma * value
            terms.append(-step.log_prob * value)
        self.optimizer.zero_grad()
        torch.stack(terms).sum().backward()
        self.optimizer.step()
        return sum(s.reward for s in episode)


def main():
    torch.manual_seed(7)
    env, agent = Corridor(6), Agent(6)
    returns = []
    for episode in range(60):
        obs, done, length = env.reset(), False, 0
        while not done:
            action, log_prob = agent.act(obs)
            obs, reward, done = env.step(action.item())
            agent.remember(log_prob, reward)
            length += 1
        returns.append(agent.learn(length))
        if episode % 15 == 14:
            print(f"episode {episode} return {sum(returns[-15:]) / 15:.3f}")


if __name__ == "__main__":
    main()
