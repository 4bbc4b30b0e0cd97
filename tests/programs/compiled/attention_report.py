"""Set-to-value regression with attention; a small reporter notes which items matter."""
import torch
from torch import nn


class Reporter:
    """Collects the share of attention that is above a floor."""

    def __init__(self, floor: float) -> None:
        self.floor, self.shares = floor, []

    @torch.compiler.disable
    def note(self, attention: torch.Tensor) -> None:
        sparse = attention.data
        sparse[sparse < self.floor] = 0.0
        self.shares.append(float((sparse > 0).float().mean()))

    def summary(self) -> str:
        return f"{sum(self.shares) / len(self.shares):.3f} of the items above {self.floor}"


class SetNet(nn.Module):
    def __init__(self, inp: int, dim: int, reporter: Reporter) -> None:
        super().__init__()
        self.key, self.value = nn.Linear(inp, dim), nn.Linear(inp, dim)
        self.query = nn.Parameter(torch.randn(dim))
        self.out = nn.Linear(dim, 1)
        self.reporter = reporter

    def forward(self, items: torch.Tensor) -> torch.Tensor:
        scores = torch.tanh(self.key(items)) @ self.query
        attention = scores.softmax(1)
        pooled = (attention.unsqueeze(2) * self.value(items)).sum(1)
        self.reporter.note(attention)
        return self.out(pooled).squeeze(1)


def bags(steps: int):
    gen = torch.Generator().manual_seed(71)
    for _ in range(steps):
        items = torch.randn(32, 9, 5, generator=gen)
        marker = items[..., 0].argmax(1)
        yield items, items[torch.arange(32), marker, 1]


def gradient_size(model: nn.Module) -> float:
    return torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()


def main() -> None:
    torch.manual_seed(70)
    reporter = Reporter(floor=0.12)
    model = SetNet(5, 16, reporter)
    run = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for step, (items, target) in enumerate(bags(30)):
        loss = (run(items) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        size = gradient_size(model)
        optimizer.step()
        if step % 10 == 9 or step == 0:
            print(f"step {step + 1} loss {loss.item():.4f} gradient {size:.5f}")
    print(reporter.summary())


if __name__ == "__main__":
    main()
