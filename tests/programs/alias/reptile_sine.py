"""Reptile on a family of sine waves."""
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


class SineTask:
    def __init__(self, gen):
        self.amplitude = 0.5 + 2.0 * torch.rand((), generator=gen)
        self.phase = math.pi * torch.rand((), generator=gen)

    def sample(self, n, gen):
        x = 10 * torch.rand(n, 1, generator=gen) - 5
        return x, self.amplitude * torch.sin(x + self.phase)


def network():
    return nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))


def adapt(model, task, gen, steps, lr):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        x, y = task.sample(16, gen)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


class Reptile:
    def __init__(self, model, outer_lr):
        self.model, self.outer_lr = model, outer_lr
        self.moved = 0.0

    def before(self):
        return dict(self.model.named_parameters())

    @torch.no_grad()
    def interpolate(self, start):
        self.moved = 0.0
        for name, p in self.model.named_parameters():
            change = p - start[name]
            self.moved += change.norm().item()
            p.copy_(start[name] + self.outer_lr * change)

    def meta_step(self, task, gen, args):
        start = self.before()
        loss = adapt(self.model, task, gen, args.inner_steps, args.inner_lr)
        self.interpolate(start)
        return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--meta-steps", type=int, default=60)
    parser.add_argument("--inner-steps", type=int, default=5)
    parser.add_argument("--inner-lr", type=float, default=0.02)
    args = parser.parse_args()
    torch.manual_seed(1)
    gen = torch.Generator().manual_seed(3)
    learner = Reptile(network(), 0.3)
    losses = []
    for step in range(args.meta_steps):
        losses.append(learner.meta_step(SineTask(gen), gen, args))
        if step % 15 == 0:
            print(f"{step} inner loss {losses[-1]:.4f} moved {learner.moved:.5f}")
    print(f"average of the last ten {sum(losses[-10:]) / 10:.4f}")


if __name__ == "__main__":
    main()
