"""Adversarial training with an in-place attack on a private copy."""
import torch
import torch.nn.functional as F
from torch import nn


class Attack:
    def __init__(self, net, radius, rate, rounds, seed):
        self.net, self.radius, self.rate, self.rounds = net, radius, rate, rounds
        self.gen = torch.Generator().manual_seed(seed)

    def __call__(self, clean, y):
        noise = torch.rand(clean.shape, generator=self.gen).mul_(2).sub_(1).mul_(self.radius)
        moved = clean.clone().add_(noise)
        for _ in range(self.rounds):
            moved.requires_grad_(True)
            grad, = torch.autograd.grad(F.cross_entropy(self.net(moved), y), moved)
            moved = moved.detach()
            moved.add_(grad.sign_(), alpha=self.rate)
            moved.sub_(clean).clamp_(-self.radius, self.radius).add_(clean)
        return moved


def data(n, seed):
    gen = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=gen)
    centre = 1.5 * torch.randn(3, 10, generator=gen)
    return centre[y] + 0.8 * torch.randn(n, 10, generator=gen), y


@torch.no_grad()
def accuracy(net, x, y):
    return round((net(x).argmax(1) == y).float().mean().item(), 3)


def main():
    torch.manual_seed(0)
    x, y = data(180, 2)
    reference = x.clone()
    net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(inplace=True), nn.Linear(32, 3))
    attack = Attack(net, 0.3, 0.1, 4, seed=5)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(8):
        for i in range(0, len(x), 60):
            xs, ys = x[i:i + 60], y[i:i + 60]
            hard = attack(xs, ys)
            loss = F.cross_entropy(net(torch.cat([xs, hard])), torch.cat([ys, ys]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f} clean {accuracy(net, x, y)} hard {accuracy(net, hard, ys)}")
    print("data unchanged", torch.equal(x, reference))


if __name__ == "__main__":
    main()
