"""A custom operator that works in place is used on a gate inside a compiled block."""
import torch
from torch import nn


@torch.library.custom_op("gates::sharpen_", mutates_args={"gate"})
def sharpen_(gate: torch.Tensor, power: float) -> None:
    gate.pow_(power)


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inp, self.gate = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x))
        with torch.no_grad():
            sharpen_(gate, 2.0)
        return gate * self.inp(x)


def train():
    torch.manual_seed(0)
    net = nn.Sequential(Gated(6), nn.Linear(6, 2))
    step = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for _ in range(3):
        x, y = torch.randn(8, 6), torch.randint(2, (8,))
        loss = nn.functional.cross_entropy(step(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


if __name__ == "__main__":
    train()
