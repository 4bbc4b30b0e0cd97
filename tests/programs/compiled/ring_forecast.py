"""Streaming load forecast: a NumPy ring of readings feeds a compiled forecaster."""
import numpy as np
import torch
from torch import nn


class Meter:
    def __init__(self, window: int) -> None:
        self.rng = np.random.default_rng(40)
        self.buf = np.zeros(window, dtype=np.float32)
        self.clock = 0

    def tick(self, count: int) -> None:
        for _ in range(count):
            self.clock += 1
            wave = np.sin(self.clock / 6) + 0.4 * np.sin(self.clock / 2.5)
            self.buf[:-1] = self.buf[1:]
            self.buf[-1] = wave + self.rng.normal(scale=0.05)

    def window(self) -> torch.Tensor:
        return torch.from_numpy(self.buf).clone()


class Forecaster(nn.Module):
    def __init__(self, window: int, horizon: int) -> None:
        super().__init__()
        self.level = nn.Linear(window, horizon)
        self.body = nn.Sequential(nn.Linear(window, 32), nn.Tanh(), nn.Linear(32, horizon))
        self.clipped = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centre = x.mean()
        y = self.level(x - centre)
        if y.detach().abs().max().item() > 3:
            self.clipped += 1
        y += self.body(x - centre)
        y.add_(centre)
        return y


class Trainer:
    def __init__(self, window: int = 24, horizon: int = 4) -> None:
        self.horizon = horizon
        self.net = Forecaster(window, horizon)
        self.run = torch.compile(self.net, backend="aot_eager")
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-2)
        for p in self.net.parameters():
            p.register_hook(lambda g: g.mul_(0.5) if g.norm() > 5 else g)

    def step(self, meter: Meter) -> float:
        prediction = self.run(meter.window())
        meter.tick(self.horizon)
        truth = meter.window()[-self.horizon :]
        loss = (prediction - truth).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main() -> None:
    torch.manual_seed(41)
    meter, trainer = Meter(24), Trainer()
    meter.tick(24)
    history = [trainer.step(meter) for _ in range(60)]
    for lo in range(0, 60, 20):
        print(f"ticks {lo:2d}..{lo + 19} mse {np.mean(history[lo : lo + 20]):.4f}")
    print("clipped", trainer.net.clipped)


if __name__ == "__main__":
    main()
