"""Recurrent actor-critic over vectorised corridors."""
import torch
from torch import nn
from torch.distributions import Categorical


class Corridor:
    def __init__(self, n: int, length: int = 6) -> None:
        self.n, self.length = n, length
        self.gen = torch.Generator().manual_seed(21)
        self.pos = torch.randint(1, length, (n,), generator=self.gen)

    def observe(self) -> torch.Tensor:
        return nn.functional.one_hot(self.pos, self.length + 1).float()

    def step(self, action: torch.Tensor):
        self.pos = (self.pos + action * 2 - 1).clamp(0, self.length)
        done = (self.pos == 0) | (self.pos == self.length)
        reward = (self.pos == self.length).float()
        fresh = torch.randint(1, self.length, (self.n,), generator=self.gen)
        self.pos = torch.where(done, fresh, self.pos)
        return self.observe(), reward, done


class RecurrentPolicy(nn.Module):
    def __init__(self, obs: int, hidden: int = 24) -> None:
        super().__init__()
        self.embed = nn.Linear(obs, hidden)
        self.w_h = nn.Linear(hidden, hidden)
        self.pi = nn.Linear(hidden, 2)
        self.v = nn.Linear(hidden, 1)

    def forward(self, obs, state):
        state = torch.tanh(self.embed(obs) + self.w_h(state))
        return self.pi(state), self.v(state).squeeze(1), state


class Worker:
    def __init__(self, envs: Corridor, policy: RecurrentPolicy) -> None:
        self.envs, self.obs = envs, envs.observe()
        self.policy = torch.compile(policy, backend="aot_eager")
        self.state = torch.zeros(envs.n, 24)

    def rollout(self, horizon: int):
        log = []
        for _ in range(horizon):
            logits, value, state = self.policy(self.obs, self.state)
            choice = Categorical(logits=logits)
            action = choice.sample()
            self.obs, reward, done = self.envs.step(action)
            self.state = state.detach()
            self.state[done] = 0.0
            log.append((choice.log_prob(action), value, reward, choice.entropy()))
        return log


def losses(log, gamma: float = 0.95):
    ret = torch.zeros_like(log[-1][2])
    total = torch.zeros(())
    for logp, value, reward, entropy in reversed(log):
        ret = reward + gamma * ret
        adv = ret - value
        total = total - (logp * adv.detach()).mean() + 0.5 * adv.square().mean() - 0.01 * entropy.mean()
    return total / len(log)


def main() -> None:
    torch.manual_seed(4)
    envs = Corridor(16)
    policy = RecurrentPolicy(envs.length + 1)
    worker = Worker(envs, policy)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for update in range(5):
        loss = losses(worker.rollout(8))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"update {update}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
