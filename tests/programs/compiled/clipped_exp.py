"""Survival regression with a hand-written exponential that bounds its gradient."""
import torch
from torch import nn


class BoundedExp(torch.autograd.Function):
    """exp(x) whose backward never exceeds a limit."""

    LIMIT = 20.0

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        y = x.clamp_(max=15.0).exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        return grad * y.clamp(max=BoundedExp.LIMIT)


class Hazard(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, 16), nn.Tanh())
        self.log_rate = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor):
        score = self.log_rate(self.body(x)).squeeze(1) * 6
        rate = BoundedExp.apply(score)
        penalty = 1e-2 * score.square().mean()
        return rate, score, penalty


class Cohort:
    def __init__(self, people: int) -> None:
        gen = torch.Generator().manual_seed(5)
        self.x = torch.randn(people, 6, generator=gen)
        truth = torch.exp(3.0 + 3.0 * self.x[:, 0] + self.x[:, 1])
        draw = -torch.log(torch.rand(people, generator=gen))
        self.time = (draw / truth).clamp(min=1e-9)
        self.event = (torch.rand(people, generator=gen) < 0.8).float()

    def batches(self, size: int):
        yield from zip(self.x.split(size), self.time.split(size), self.event.split(size))


def nll(rate, score, time, event) -> torch.Tensor:
    return (rate * time - event * score).mean()


def main() -> None:
    torch.manual_seed(55)
    cohort, model = Cohort(256), Hazard(6)
    nn.init.constant_(model.log_rate.bias, 2.4)
    run = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(5):
        running = 0.0
        for x, time, event in cohort.batches(64):
            rate, score, penalty = run(x)
            loss = nll(rate, score, time, event) + penalty
            optimizer.zero_grad()
            loss.backward()
            if running == 0.0:
                first = model.log_rate.weight.grad.norm().item()
            optimizer.step()
            running += loss.item()
        print(f"epoch {epoch} loss {running / 4:.4f} gradient {first:.4f}")


if __name__ == "__main__":
    main()
