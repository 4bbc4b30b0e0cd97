"""Evolution on islands with migration of individuals."""
from dataclasses import dataclass

import torch


@dataclass
class Plan:
    islands: int = 4
    size: int = 24
    dim: int = 6
    generations: int = 60
    migrate_every: int = 10
    sigma: float = 0.3


def fitness(genomes):
    return -(genomes.pow(2) - 3.0 * torch.cos(2.5 * genomes)).sum(-1)


class Islands:
    def __init__(self, plan, seed):
        self.plan = plan
        self.gen = torch.Generator().manual_seed(seed)
        self.genomes = torch.randn(plan.islands, plan.size, plan.dim, generator=self.gen) * 3
        self.best, self.champion = -float("inf"), None
        self.curve = []

    def note_champion(self, scores):
        value, where = scores.view(-1).max(0)
        if value > self.best:
            self.best = value.item()
            self.champion = self.genomes.view(-1, self.plan.dim)[where].clone()

    def breed(self):
        scores = fitness(self.genomes)
        self.note_champion(scores)
        order = scores.argsort(1, descending=True)
        half = self.plan.size // 2
        rows = torch.arange(self.plan.islands)[:, None]
        parents = self.genomes[rows, order[:, :half]]
        mates = parents[:, torch.randperm(half, generator=self.gen)]
        noise = torch.randn(parents.shape, generator=self.gen)
        children = parents.add(mates).mul_(0.5).add_(noise, alpha=self.plan.sigma)
        self.genomes[:, :half] = parents
        self.genomes[:, half:] = children
        self.curve.append(scores.mean().item())

    def migrate(self):
        ring = torch.arange(self.plan.islands).roll(1)
        self.genomes[:, 0] = self.genomes[ring, 0]
        pair = torch.randperm(self.plan.islands, generator=self.gen)[:2]
        self.genomes[pair, 1] = self.genomes[pair.flip(0), 1]


def main():
    plan = Plan()
    world = Islands(plan, seed=2)
    for generation in range(plan.generations):
        world.breed()
        if generation % plan.migrate_every == plan.migrate_every - 1:
            world.migrate()
            print(generation, f"mean {world.curve[-1]:.3f} best {world.best:.3f}")
    print("champion", [round(v, 3) for v in world.champion.tolist()])
    print("agrees", round(fitness(world.champion).item() - world.best, 6))


if __name__ == "__main__":
    main()
