"""Local training on several workers with periodic averaging of weights."""
import copy

import torch
import torch.nn.functional as F
from torch import nn


class Worker:
    def __init__(self, model, seed):
        self.model = copy.deepcopy(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.5)
        gen = torch.Generator().manual_seed(seed)
        self.x = torch.randn(40, 5, generator=gen)
        self.y = self.x[:, :1].sin() + self.x[:, 1:2] * 0.3

    def work(self, steps):
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss = F.mse_loss(self.model(self.x), self.y)
            loss.backward()
            self.optimizer.step()
        return loss.item()


@torch.no_grad()
def consensus(workers):
    mean = copy.deepcopy(workers[0].model.state_dict())
    for key, total in mean.items():
        for worker in workers[1:]:
            total += worker.model.state_dict()[key]
        total /= len(workers)
    return mean


@torch.no_grad()
def distribute(workers, mean):
    for worker in workers:
        for key, value in worker.model.state_dict().items():
            value.copy_(mean[key])


def spread(workers):
    flat = torch.stack([nn.utils.parameters_to_vector(w.model.parameters()).detach() for w in workers])
    return flat.std(0).mean().item()


def main():
    torch.manual_seed(0)
    start = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
    workers = [Worker(start, s) for s in range(3)]
    for n in range(6):
        losses = [w.work(5) for w in workers]
        apart = spread(workers)
        distribute(workers, consensus(workers))
        print(n, [round(v, 4) for v in losses], f"apart {apart:.5f} after {spread(workers):.7f}")


if __name__ == "__main__":
    main()
