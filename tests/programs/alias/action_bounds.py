"""Fits actions by random search with a penalty for leaving the actuator's range."""
import argparse

import torch


class Plant:
    def __init__(self, horizon, dim, seed):
        gen = torch.Generator().manual_seed(seed)
        self.mix = torch.eye(dim) * 0.9 + 0.05 * torch.randn(dim, dim, generator=gen)
        self.goal = 2.0 * torch.randn(dim, generator=gen)
        self.horizon, self.dim = horizon, dim

    def rollout(self, actions):
        state = torch.zeros(actions.shape[0], self.dim)
        for t in range(self.horizon):
            state = state @ self.mix + 0.3 * actions[:, t]
        return state


class Objective:
    def __init__(self, plant, limit, weight):
        self.plant, self.limit, self.weight = plant, limit, weight

    def violation(self, actions):
        return (actions - actions.clamp_(-self.limit, self.limit)).pow(2).sum((1, 2))

    def __call__(self, actions):
        miss = (self.plant.rollout(actions) - self.plant.goal).pow(2).sum(1)
        penalty = self.violation(actions)
        return miss + self.weight * penalty, penalty


class CrossEntropy:
    def __init__(self, objective, shape, population, elite, seed):
        self.objective = objective
        self.mean, self.std = torch.zeros(shape), torch.ones(shape)
        self.population, self.elite = population, elite
        self.gen = torch.Generator().manual_seed(seed)

    def iterate(self):
        noise = torch.randn(self.population, *self.mean.shape, generator=self.gen)
        actions = self.mean + self.std * noise
        cost, penalty = self.objective(actions)
        top = cost.topk(self.elite, largest=False).indices
        self.mean, self.std = actions[top].mean(0), actions[top].std(0) + 0.02
        return cost[top].mean().item(), penalty.mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=float, default=0.8)
    parser.add_argument("--iterations", type=int, default=12)
    args = parser.parse_args()
    plant = Plant(6, 3, seed=4)
    search = CrossEntropy(Objective(plant, args.limit, 5.0), (6, 3), 200, 20, seed=0)
    for i in range(args.iterations):
        cost, penalty = search.iterate()
        if i % 3 == 0:
            print(f"iteration {i} elite cost {cost:.4f} mean penalty {penalty:.4f}")
    print("largest planned action", round(search.mean.abs().max().item(), 4))


if __name__ == "__main__":
    main()
