"""Projected gradient attack and a robustness report."""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class AttackConfig:
    epsilon: float = 0.15
    step: float = 0.05
    iterations: int = 10


class Attack:
    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg

    def gradient(self, images, labels):
        probe = images.clone().requires_grad_(True)
        loss = F.cross_entropy(self.model(probe), labels)
        return torch.autograd.grad(loss, probe)[0]

    def run(self, images, labels):
        moved = images.detach()

        for _ in range(self.cfg.iterations):
            grad = self.gradient(moved, labels)
            moved += self.cfg.step * grad.sign()
            delta = (moved - images).clamp(-self.cfg.epsilon, self.cfg.epsilon)
            moved.copy_(images + delta)
        return moved


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(36, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x):
        return self.body(x)


def pictures(n, gen):
    y = torch.randint(3, (n,), generator=gen)
    x = 0.3 * torch.rand(n, 6, 6, generator=gen)
    for c in range(3):
        x[y == c, 2 * c:2 * c + 2] += 0.3
    return x, y


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(9)
    x, y = pictures(200, gen)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    test_x, test_y = pictures(120, gen)
    for epsilon in (0.05, 0.1, 0.2):
        attacked = Attack(model, AttackConfig(epsilon=epsilon, step=epsilon / 4)).run(test_x, test_y)
        print(f"epsilon {epsilon}: clean {accuracy(model, test_x, test_y):.3f}",
              f"robust {accuracy(model, attacked, test_y):.3f}",
              f"largest change {(attacked - test_x).abs().max().item():.3f}")


if __name__ == "__main__":
    main()
