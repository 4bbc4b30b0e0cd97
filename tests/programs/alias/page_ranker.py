"""Personalised ranking of a citation graph by repeated propagation."""
import torch


class Graph:
    def __init__(self, nodes, edges, seed):
        gen = torch.Generator().manual_seed(seed)
        src = torch.randint(nodes, (edges,), generator=gen)
        dst = torch.randint(nodes // 2, (edges,), generator=gen)
        adjacency = torch.zeros(nodes, nodes)
        adjacency[dst, src] = 1.0
        adjacency += torch.eye(nodes)
        self.transition = adjacency / adjacency.sum(0, keepdim=True)
        self.nodes = nodes


class Ranker:
    def __init__(self, graph, restart=0.2, sweeps=40):
        self.graph, self.restart, self.sweeps = graph, restart, sweeps
        self.trail = []

    def seed_vector(self, seeds):
        vector = torch.zeros(self.graph.nodes)
        vector[seeds] = 1.0 / len(seeds)
        return vector

    def propagate(self, mass):
        return torch.mv(self.graph.transition, mass, out=mass)

    def rank(self, seeds):
        teleport = self.seed_vector(seeds)
        mass = teleport.clone()
        for _ in range(self.sweeps):
            mass = self.propagate(mass).mul_(1 - self.restart).add_(teleport, alpha=self.restart)
            self.trail.append(mass.sum().item())
        return mass


def top(scores, k):
    values, ids = scores.topk(k)
    return [(i, round(v, 4)) for i, v in zip(ids.tolist(), values.tolist())]


def main():
    graph = Graph(40, 160, seed=6)
    ranker = Ranker(graph)
    for seeds in ([3, 30], [25], [7, 8, 9]):
        scores = ranker.rank(seeds)
        print("seeds", seeds, "total", round(scores.sum().item(), 4), top(scores, 4))
    print("smallest total on the way", round(min(ranker.trail), 4))


if __name__ == "__main__":
    main()
