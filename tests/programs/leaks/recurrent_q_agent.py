import random
from collections import namedtuple

import torch
import torch.nn.functional as F
from torch import nn, optim

Transition = namedtuple("Transition", "obs action reward next_obs done h")


class ReplayMemory:
    def __init__(self):
        self.memory = []

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, k):
        return Transition(*zip(*random.sample(self.memory, k)))

    def __len__(self):
        return len(self.memory)


class DRQN(nn.Module):
    def __init__(self, n_obs, n_act, hid=24):
        super().__init__()
        self.hid = hid
        self.fc = nn.Linear(n_obs, hid)
        self.rnn = nn.GRUCell(hid, hid)
        self.q = nn.Linear(hid, n_act)

    def forward(self, obs, h):
        h = self.rnn(F.relu(self.fc(obs)), h)
        return self.q(h), h

    def initial(self, n=1):
        return torch.zeros(n, self.hid)


class Corridor:
    """Partially observed corridor: sees a cue on the first step only."""

    def __init__(self, length=4):
        self.length = length

    def reset(self):
        self.t, self.cue = 0, random.randint(0, 1)
        return self._obs()

    def _obs(self):
        v = torch.zeros(1, 3)
        v[0, 0] = self.t / self.length
        if self.t == 0:
            v[0, 1 + self.cue] = 1.0
        return v

    def step(self, a):
        self.t += 1
        done = self.t >= self.length
        reward = float(a == self.cue) if done else 0.0
        return self._obs(), reward, done


class Agent:
    def __init__(self, eps=0.3, gamma=0.95):
        self.net, self.target = DRQN(3, 2), DRQN(3, 2)
        self.target.load_state_dict(self.net.state_dict())
        self.opt = optim.Adam(self.net.parameters(), 3e-3)
        self.memory = ReplayMemory()
        self.eps, self.gamma = eps, gamma

    def act(self, obs, h):
        q, h_next = self.net(obs, h)
        if random.random() < self.eps:
            return random.randint(0, 1), h_next
        return q.argmax(-1).item(), h_next

    def learn(self, batch_size=8):
        if len(self.memory) < batch_size:
            return None
        b = self.memory.sample(batch_size)
        obs, nxt = torch.cat(b.obs), torch.cat(b.next_obs)
        act = torch.tensor(b.action).unsqueeze(1)
        rew, done = torch.tensor(b.reward), torch.tensor(b.done, dtype=torch.float)
        h0 = torch.cat([h.data for h in b.h])
        q, h1 = self.net(obs, h0)
        with torch.no_grad():
            boot = self.target(nxt, h1)[0].max(-1).values
            y = rew + self.gamma * (1 - done) * boot
        loss = F.smooth_l1_loss(q.gather(1, act).squeeze(1), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def run(episodes=12):
    env, agent = Corridor(), Agent()
    for ep in range(episodes):
        obs, h, done, score = env.reset(), agent.net.initial(), False, 0.0
        while not done:
            a, h_next = agent.act(obs, h)
            nxt, r, done = env.step(a)
            agent.memory.push(obs, a, r, nxt, done, h)
            obs, h = nxt, h_next
            score += r
            last = agent.learn()
        print("episode %2d score %.0f loss %s buffer %d" % (ep, score, last, len(agent.memory)))


if __name__ == "__main__":
    random.seed(0)
    torch.manual_seed(0)
    run()
