"""Distillation on tapped activations."""
import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = nn.Linear(width, width)
        self.b = nn.Linear(width, width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        h = self.relu(self.a(x))
        return self.relu(self.b(h) + x)


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Linear(6, width)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(depth))
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


class Taps:
    def __init__(self, net):
        self.values = {}
        for i, block in enumerate(net.blocks):
            block.b.register_forward_hook(self.keep(i))

    def keep(self, i):
        def hook(module, args, output):
            self.values[i] = output
        return hook


def distil(student, teacher, x, steps):
    s_taps, t_taps = Taps(student), Taps(teacher)
    optimizer = torch.optim.Adam(student.parameters(), lr=5e-3)
    for step in range(steps):
        with torch.no_grad():
            soft = teacher(x).softmax(1)
        logits = student(x)
        inner = sum(F.mse_loss(s_taps.values[i], t_taps.values[i]) for i in s_taps.values)
        loss = F.kl_div(logits.log_softmax(1), soft, reduction="batchmean") + 0.1 * inner
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            low = min(v.min().item() for v in t_taps.values.values())
            print(f"step {step} loss {loss.item():.5f} inner {inner.item():.5f} lowest {low:.4f}")


def main():
    torch.manual_seed(3)
    x = torch.randn(64, 6, generator=torch.Generator().manual_seed(1))
    distil(Net(12, 2), Net(12, 2).eval(), x, 60)


if __name__ == "__main__":
    main()
