"""Two simulated workers whose gradients are views into one flat bucket each, averaged before the step."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F


class Bucket:
    """One contiguous tensor; every parameter's .grad is a window of it."""

    def __init__(self, params):
        self.params = list(params)
        self.flat = torch.zeros(sum(p.numel() for p in self.params))
        at = 0
        for p in self.params:
            p.grad = self.flat[at:at + p.numel()].view_as(p)
            at += p.numel()

    def zero(self):
        self.flat.zero_()

    def clip(self, limit):
        norm = self.flat.norm()
        self.flat.mul_((limit / (norm + 1e-6)).clamp(max=1.0))
        return norm.item()


class Worker:
    def __init__(self, net, x, y, accumulate, lr=0.05):
        self.net, self.x, self.y = net, x, y
        self.bucket = Bucket(net.parameters())
        self.opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
        self.accumulate = accumulate

    def backward(self, idx):
        self.bucket.zero()
        total = 0.0
        for part in idx.chunk(self.accumulate):
            loss = F.cross_entropy(self.net(self.x[part]), self.y[part]) / self.accumulate
            loss.backward()
            total += loss.item()
        return total


def all_reduce(buckets):
    first = buckets[0].flat
    for other in buckets[1:]:
        first.add_(other.flat)
    first.div_(len(buckets))
    for other in buckets[1:]:
        other.flat.copy_(first)


def data(n, gen):
    y = torch.randint(0, 3, (n,), generator=gen)
    centres = torch.tensor([[1.5, 0.0, 0.5], [-1.0, 1.0, 0.0], [0.0, -1.5, -0.5]])
    return centres[y] + 0.8 * torch.randn(n, 3, generator=gen), y


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(2)
    net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))
    shards = [data(160, gen) for _ in range(2)]
    single = copy.deepcopy(net)
    workers = [Worker(copy.deepcopy(net), x, y, accumulate=2) for x, y in shards]
    ref = torch.optim.SGD(single.parameters(), lr=0.05, momentum=0.9)
    for step in range(40):
        idx = torch.randint(0, 160, (32,), generator=gen)
        losses = [w.backward(idx) for w in workers]
        all_reduce([w.bucket for w in workers])
        norms = [w.bucket.clip(1.0) for w in workers]
        for w in workers:
            w.opt.step()
        ref.zero_grad()
        sum(F.cross_entropy(single(x[idx]), y[idx]) for x, y in shards).div(2).backward()
        nn.utils.clip_grad_norm_(single.parameters(), 1.0)
        ref.step()
        if step % 20 == 19:
            print(f"step {step + 1} losses {[round(l, 4) for l in losses]} norm {norms[0]:.4f}")
    gap = max((a - b).abs().max().item() for a, b in zip(workers[0].net.parameters(), single.parameters()))
    same = all(torch.equal(a, b) for a, b in zip(workers[0].net.parameters(), workers[1].net.parameters()))
    print(f"close to the single-process run {gap < 1e-4} workers equal {same}")


if __name__ == "__main__":
    main()
