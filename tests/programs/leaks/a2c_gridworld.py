import torch
import torch.nn as nn
from torch.distributions import Categorical

N_STEP = 6
GAMMA = 0.97
SIZE = 5


class Grid:
    def __init__(self, n_env):
        self.n = n_env
        self.moves = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])
        self.goal = torch.tensor([SIZE - 1, SIZE - 1])
        self.pos = torch.zeros(n_env, 2, dtype=torch.long)

    def obs(self):
        return torch.cat([self.pos, self.goal - self.pos], 1).float() / SIZE

    def step(self, a):
        self.pos = (self.pos + self.moves[a]).clamp(0, SIZE - 1)
        done = (self.pos == self.goal).all(1)
        reward = done.float() - 0.02
        self.pos[done] = 0
        return self.obs(), reward, done.float()


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
        self.pi, self.v = nn.Linear(32, 4), nn.Linear(32, 1)

    def forward(self, o):
        z = self.trunk(o)
        return Categorical(logits=self.pi(z)), self.v(z).squeeze(-1)


class Rollout:
    def __init__(self):
        self.clear()

    def clear(self):
        self.logp, self.values, self.rewards, self.masks = [], [], [], []
        self.entropy = 0

    def add(self, logp, value, reward, mask, entropy):
        self.logp.append(logp)
        self.values.append(value)
        self.rewards.append(reward)
        self.masks.append(mask)
        self.entropy += entropy

    def returns(self, bootstrap):
        out, r = [], bootstrap
        for rew, mask in zip(reversed(self.rewards), reversed(self.masks)):
            r = rew + GAMMA * mask * r
            out.insert(0, r)
        return torch.stack(out)


def main(frames=150):
    torch.manual_seed(5)
    env, net, roll = Grid(8), ActorCritic(), Rollout()
    opt = torch.optim.RMSprop(net.parameters(), lr=3e-3)
    obs, reached, updates = env.obs(), 0, 0
    for frame in range(frames):
        dist, value = net(obs)
        action = dist.sample()
        obs, reward, done = env.step(action)
        reached += int(done.sum())
        roll.add(dist.log_prob(action), value, reward, 1 - done, dist.entropy().mean())
        if (frame + 1) % N_STEP:
            continue
        with torch.no_grad():
            _, boot = net(obs)
        adv = roll.returns(boot) - torch.stack(roll.values)
        actor = -(torch.stack(roll.logp) * adv.detach()).mean()
        loss = actor + 0.5 * adv.pow(2).mean() - 0.01 * roll.entropy / N_STEP
        opt.zero_grad()
        loss.backward()
        opt.step()
        updates += 1
        roll.clear()
    print(f"{updates} updates, goal reached {reached} times, last loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
