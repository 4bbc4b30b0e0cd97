"""Multi-task training with projection of conflicting task gradients."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiHead(nn.Module):
    def __init__(self, din=10, width=24, tasks=3):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(din, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(width, 1) for _ in range(tasks))

    def forward(self, x):
        h = self.trunk(x)
        return [head(h).squeeze(-1) for head in self.heads]


class GradSurgeon:
    def __init__(self, optimizer, params, seed=0):
        self.opt = optimizer
        self.params = list(params)
        self.rng = random.Random(seed)
        self.conflicts = 0

    def _collect(self, losses):
        per_task = []
        for i, loss in enumerate(losses):
            self.opt.zero_grad(set_to_none=False)
            loss.backward(retain_graph=i < len(losses) - 1)
            per_task.append([p.grad for p in self.params])
        return per_task

    @staticmethod
    def _flat(grads):
        return torch.cat([g.flatten() for g in grads])

    def _project(self, flats):
        merged = []
        for i, g in enumerate(flats):
            g = g.clone()
            others = [j for j in range(len(flats)) if j != i]
            self.rng.shuffle(others)
            for j in others:
                dot = torch.dot(g, flats[j])
                if dot < 0:
                    self.conflicts += 1
                    g -= dot / flats[j].norm().pow(2).clamp(min=1e-12) * flats[j]
            merged.append(g)
        return torch.stack(merged).mean(0)

    def _assign(self, flat):
        offset = 0
        for p in self.params:
            n = p.numel()
            p.grad = flat[offset:offset + n].view_as(p).clone()
            offset += n

    def backward(self, losses):
        for p in self.params:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        flats = [self._flat(g) for g in self._collect(losses)]
        self._assign(self._project(flats))


def make_tasks(n=256, din=10):
    x = torch.randn(n, din)
    w = torch.randn(3, din)
    w[1] = -0.7 * w[0] + 0.3 * w[1]
    ys = [torch.tanh(x @ wi) for wi in w]
    return x, ys


def main():
    torch.manual_seed(11)
    x, ys = make_tasks()
    net = MultiHead()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    surgeon = GradSurgeon(opt, net.parameters())
    for step in range(60):
        idx = torch.randint(0, len(x), (64,))
        outs = net(x[idx])
        losses = [F.mse_loss(o, y[idx]) for o, y in zip(outs, ys)]
        surgeon.backward(losses)
        opt.step()
        if step % 20 == 19:
            print(step + 1, [round(l.item(), 4) for l in losses], "conflicts", surgeon.conflicts)
    with torch.no_grad():
        final = [F.mse_loss(o, y).item() for o, y in zip(net(x), ys)]
    print("final", [round(v, 4) for v in final])


if __name__ == "__main__":
    main()
