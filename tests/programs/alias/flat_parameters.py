"""One flat vector holds all weights; the module's parameters are windows into it."""
import torch
import torch.nn.functional as F
from torch import nn


class FlatModule:
    def __init__(self, module):
        self.module = module
        params = list(module.parameters())
        self.flat = torch.cat([p.detach().reshape(-1) for p in params])
        self.grad = torch.zeros_like(self.flat)
        offset = 0
        for p in params:
            end = offset + p.numel()
            p.data = self.flat[offset:end].view_as(p)
            p.grad = self.grad[offset:end].view_as(p)
            offset = end

    def gather(self):
        return self.flat

    def zero_grad(self):
        self.grad.zero_()

    @torch.no_grad()
    def step(self, lr, decay):
        self.flat.mul_(1 - lr * decay).add_(self.grad, alpha=-lr)


class History:
    def __init__(self):
        self.points = []

    def keep(self, flat):
        self.points.append(flat.clone())

    def travelled(self):
        return [(b - a).norm().item() for a, b in zip(self.points, self.points[1:])]


def data(seed):
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(120, 4, generator=gen)
    return x, (x[:, :1] * x[:, 1:2]).tanh() + 0.1 * x[:, 2:3]


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 20), nn.Tanh(), nn.Linear(20, 1))
    flat = FlatModule(net)
    x, y = data(1)
    history = History()
    history.keep(flat.gather())
    for epoch in range(5):
        for _ in range(20):
            flat.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            flat.step(0.1, 1e-3)
        history.keep(flat.gather())
        print(f"epoch {epoch} loss {loss.item():.5f}")
    print("travelled", [round(v, 4) for v in history.travelled()])
    print("total", round((history.points[-1] - history.points[0]).norm().item(), 4))


if __name__ == "__main__":
    main()
