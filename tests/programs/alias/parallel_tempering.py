"""Parallel tempering on a rugged energy surface."""
from dataclasses import dataclass

import torch


@dataclass
class Schedule:
    replicas: int = 5
    hottest: float = 8.0
    steps: int = 300
    swap_every: int = 3

    def temperatures(self):
        return torch.logspace(0, torch.log10(torch.tensor(self.hottest)).item(), self.replicas)


def energy(x):
    return 0.5 * x.pow(2).sum(-1) + 2.0 * torch.cos(3.0 * x).sum(-1)


class Tempering:
    def __init__(self, schedule, dim, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.temps = schedule.temperatures()
        self.states = torch.randn(schedule.replicas, dim, generator=self.gen) * 2
        self.labels = list(range(schedule.replicas))
        self.accepted = 0

    def move(self):
        width = 0.4 * self.temps.sqrt()[:, None]
        trial = self.states + width * torch.randn(self.states.shape, generator=self.gen)
        drop = (energy(self.states) - energy(trial)) / self.temps
        ok = torch.rand(drop.shape, generator=self.gen) < drop.exp()
        self.states = torch.where(ok[:, None], trial, self.states)

    def exchange(self, low, high):
        e = energy(self.states)
        gap = (1 / self.temps[low] - 1 / self.temps[high]) * (e[low] - e[high])
        if torch.rand((), generator=self.gen) < gap.exp():
            self.states[low], self.states[high] = self.states[high], self.states[low]
            self.labels[low], self.labels[high] = self.labels[high], self.labels[low]
            self.accepted += 1

    def distinct(self):
        return len({tuple(row) for row in self.states.tolist()})


def main():
    schedule = Schedule()
    sim = Tempering(schedule, dim=3, seed=1)
    collapsed, visited = 0, []
    for step in range(schedule.steps):
        sim.move()
        if step % schedule.swap_every == 0:
            first = (step // schedule.swap_every) % 2
            for low in range(first, schedule.replicas - 1, 2):
                sim.exchange(low, low + 1)
            collapsed += sim.distinct() < schedule.replicas
        visited.append(energy(sim.states[0]).item())
    print("swaps", sim.accepted, "walkers", sim.labels)
    print("rounds with equal replicas", collapsed)
    print("mean cold energy", round(sum(visited) / len(visited), 4))


if __name__ == "__main__":
    main()
