"""Asynchronous advantage learning: worker processes explore and improve one policy."""
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.distributions import Categorical

WORKERS = 2


class Policy(nn.Module):
    def __init__(self, arms: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 16), nn.Tanh())
        self.pi, self.v = nn.Linear(16, arms), nn.Linear(16, 1)

    def forward(self, context):
        h = self.body(context)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


class Bandit:
    """Contextual bandit: the best arm is the largest of the three inputs."""

    def __init__(self, seed: int) -> None:
        self.gen = torch.Generator().manual_seed(seed)

    def contexts(self, count: int) -> torch.Tensor:
        return torch.randn(count, 3, generator=self.gen)

    @staticmethod
    def reward(context: torch.Tensor, arm: torch.Tensor) -> torch.Tensor:
        return (context.argmax(1) == arm).float()


def explore(index: int, policy: Policy, episodes: int, results) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(700 + index)
    bandit = Bandit(70 + index)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.3)
    total = 0.0
    for _ in range(episodes):
        context = bandit.contexts(64)
        choice, value = policy(context)
        arm = choice.sample()
        reward = bandit.reward(context, arm)
        gain = reward - value
        loss = (-choice.log_prob(arm) * gain.detach() + 0.5 * gain.square()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = reward.mean().item()
    results.put((index, total))


@torch.no_grad()
def assess(policy: Policy) -> float:
    context = Bandit(1).contexts(500)
    choice, _ = policy(context)
    return Bandit.reward(context, choice.probs.argmax(1)).mean().item()


def main() -> None:
    context = mp.get_context("fork")
    torch.set_num_threads(1)
    torch.manual_seed(71)
    policy = Policy(3)
    results = context.Queue()
    crew = [context.Process(target=explore, args=(i, policy, 6, results)) for i in range(WORKERS)]
    for p in crew:
        p.start()
    for p in crew:
        p.join()
    for index, reward in sorted(results.get() for _ in crew):
        print(f"worker {index} last reward {reward:.3f}")
    print(f"policy after training {assess(policy):.3f}")


if __name__ == "__main__":
    main()
