"""Quantisation-aware training of a small residual network with a straight-through estimator."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class RoundClip(torch.autograd.Function):
    """Uniform quantiser on [-limit, limit]; gradient passes inside the range only."""

    @staticmethod
    def forward(ctx, x, levels, limit):
        ctx.save_for_backward(x)
        ctx.limit = limit
        step = 2 * limit / (levels - 1)
        return torch.round(x.clamp(-limit, limit) / step) * step

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        grad_input = grad_output
        grad_input[x.abs() > ctx.limit] = 0
        return grad_input, None, None


class QuantAct(nn.Module):
    def __init__(self, bits=3, limit=0.8):
        super().__init__()
        self.levels, self.limit = 2 ** bits, limit

    def forward(self, x):
        return RoundClip.apply(x, self.levels, self.limit)


class ResidualUnit(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.quant = QuantAct()

    def forward(self, x):
        h = self.fc(x)
        return h + self.quant(h)


class QuantNet(nn.Module):
    def __init__(self, din=8, dim=24, classes=4, depth=3):
        super().__init__()
        self.inp = nn.Linear(din, dim)
        self.units = nn.Sequential(*[ResidualUnit(dim) for _ in range(depth)])
        self.out = nn.Linear(dim, classes)

    def forward(self, x):
        return self.out(self.units(self.inp(x)))


def blobs(n, classes, dim, gen):
    centres = 2.0 * torch.randn(classes, dim, generator=gen)
    y = torch.randint(0, classes, (n,), generator=gen)
    return centres[y] + torch.randn(n, dim, generator=gen), y


def grad_report(model):
    return {name: round(p.grad.norm().item(), 4) for name, p in model.named_parameters() if "fc.weight" in name}


def main():
    torch.manual_seed(1)
    gen = torch.Generator().manual_seed(8)
    x, y = blobs(400, 4, 8, gen)
    model = QuantNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(6):
        for idx in torch.randperm(len(x), generator=gen).split(50):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.5f}")
    print("gradient norms", grad_report(model))
    with torch.no_grad():
        acc = (model(x).argmax(1) == y).float().mean()
    print(f"train accuracy {acc:.4f}")


if __name__ == "__main__":
    main()
