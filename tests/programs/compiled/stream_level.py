"""Live vibration monitor: subtract a slowly moving level, then flag unusual frames."""
import torch
from torch import nn
from torch.nn import functional as F


class LevelTracker(nn.Module):
    """Moving level per band; training drops bands so that the detector does not rely on one."""

    def __init__(self, bands: int, decay: float, drop: float) -> None:
        super().__init__()
        self.register_buffer("level", torch.zeros(bands))
        self.decay, self.drop = decay, drop

    def forward(self, frame: torch.Tensor) -> torch.Tensor:
        level = F.dropout(self.level, self.drop, self.training)
        level.mul_(self.decay).add_(frame.mean(0), alpha=1 - self.decay)
        return frame - level


class Monitor(nn.Module):
    def __init__(self, bands: int) -> None:
        super().__init__()
        self.track = LevelTracker(bands, decay=0.8, drop=0.1)
        self.score = nn.Sequential(nn.Linear(bands, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, frame: torch.Tensor) -> torch.Tensor:
        return self.score(self.track(frame)).squeeze(1)


class Machine:
    """Every band has an offset of its own; faults lift half of them."""

    def __init__(self, bands: int, seed: int, offset: float) -> None:
        self.gen = torch.Generator().manual_seed(seed)
        self.offset = offset * torch.randn(bands, generator=self.gen)

    def read(self, rows: int):
        fault = torch.rand(rows, generator=self.gen) < 0.15
        frame = 0.4 * torch.randn(rows, len(self.offset), generator=self.gen)
        frame[fault, ::2] += 1.5
        return frame + self.offset, fault


def fit(monitor: Monitor, bands: int) -> None:
    bench = Machine(bands, seed=3, offset=0.0)
    optimizer = torch.optim.Adam(monitor.score.parameters(), lr=1e-2)
    for _ in range(80):
        frame, fault = bench.read(64)
        loss = F.binary_cross_entropy_with_logits(monitor.score(frame - 0.1).squeeze(1), fault.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def live(run, bands: int, ticks: int) -> list[float]:
    machine, hits = Machine(bands, seed=4, offset=2.0), []
    for _ in range(ticks):
        frame, fault = machine.read(64)
        hits.append(((run(frame) > 0) == fault).float().mean().item())
    return hits


def main() -> None:
    torch.manual_seed(60)
    bands = 10
    monitor = Monitor(bands)
    fit(monitor, bands)
    monitor.eval()
    run = torch.compile(monitor, backend="aot_eager")
    hits = live(run, bands, 40)
    for lo in range(0, 40, 10):
        print(f"ticks {lo:2d}.. correct {sum(hits[lo : lo + 10]) / 10:.3f}")
    print(f"level norm {monitor.track.level.norm().item():.4f}")


if __name__ == "__main__":
    main()
