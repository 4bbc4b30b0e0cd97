"""Anomaly scores from a recurrent forecaster whose state is carried over chunks."""
import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, inp: int, hidden: int) -> None:
        super().__init__()
        self.i, self.h = nn.Linear(inp, 2 * hidden), nn.Linear(hidden, 2 * hidden)

    def forward(self, x, h):
        gate, new = (self.i(x) + self.h(h)).chunk(2, 1)
        gate = torch.sigmoid(gate)
        return gate * h + (1 - gate) * torch.tanh(new)


class Forecaster(nn.Module):
    def __init__(self, inp: int, hidden: int) -> None:
        super().__init__()
        self.cell, self.out = Cell(inp, hidden), nn.Linear(hidden, inp)

    def forward(self, chunk: torch.Tensor, h: torch.Tensor):
        outputs = torch.empty(chunk.shape)
        for t in range(chunk.shape[1]):
            h = self.cell(chunk[:, t], h)
            outputs[:, t] = self.out(h)
        return outputs, h


class Sensors:
    def __init__(self, machines: int) -> None:
        self.gen = torch.Generator().manual_seed(131)
        self.phase = torch.rand(machines, 1, generator=self.gen) * 6
        self.clock = 0

    def chunk(self, length: int):
        t = torch.arange(self.clock, self.clock + length)[None] / 3 + self.phase
        self.clock += length - 1
        values = torch.stack([t.sin(), t.cos()], 2)
        restarted = torch.rand(len(self.phase), generator=self.gen) < 0.25
        return values + 0.05 * torch.randn(values.shape, generator=self.gen), restarted


def main() -> None:
    torch.manual_seed(130)
    sensors, model = Sensors(8), Forecaster(2, 16)
    run = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    state = torch.zeros(8, 16)
    for step in range(30):
        values, restarted = sensors.chunk(5)
        predicted, last = run(values[:, :-1], state)
        state = last.detach().clone()
        state[restarted] = 0.0
        loss = (predicted - values[:, 1:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1} mse {loss.item():.4f}")


if __name__ == "__main__":
    main()
