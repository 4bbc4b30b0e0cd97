"""Network with a hand-written activation."""
import torch
import torch.nn.functional as F
from torch import nn


class SwishFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, beta):
        ctx.x, ctx.beta = x, beta
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def backward(ctx, grad):
        s = torch.sigmoid(ctx.beta * ctx.x)
        return grad * (s + ctx.beta * ctx.x * s * (1 - s)), None


class Swish(nn.Module):
    def __init__(self, beta=1.5):
        super().__init__()
        self.beta = beta

    def forward(self, x):
        return SwishFunction.apply(x, self.beta)


class GatedBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lift = nn.Linear(width, width)
        self.act = Swish()
        self.shift = nn.Parameter(torch.full((width,), 0.7))

    def forward(self, x):
        h = self.lift(x)
        active = self.act(h)
        gate = h.add_(self.shift).tanh()
        return x + active * gate


class Net(nn.Module):
    def __init__(self, width=16, depth=2):
        super().__init__()
        self.inp = nn.Linear(3, width)
        self.blocks = nn.Sequential(*[GatedBlock(width) for _ in range(depth)])
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x)))


def gradient_norm(model):
    return torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()


def main():
    torch.manual_seed(4)
    gen = torch.Generator().manual_seed(4)
    x = torch.randn(128, 3, generator=gen)
    y = (x[:, :1] * x[:, 1:2] + x[:, 2:].cos())
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(120):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.5f} gradient {gradient_norm(model):.5f}")
        optimizer.step()
    print(f"final {loss.item():.5f}")


if __name__ == "__main__":
    main()
