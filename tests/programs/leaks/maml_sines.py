from dataclasses import dataclass, field
from typing import Dict, List

import torch
from torch import Tensor, nn
from torch.func import functional_call


@dataclass
class InnerTrace:
    params: List[Dict[str, Tensor]] = field(default_factory=list)
    losses: List[Tensor] = field(default_factory=list)


class Regressor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class SineTask:
    def __init__(self) -> None:
        self.amp = torch.empty(1).uniform_(0.5, 3.0)
        self.phase = torch.empty(1).uniform_(0.0, 3.14)

    def batch(self, k: int):
        x = torch.empty(k, 1).uniform_(-3, 3)
        return x, self.amp * torch.sin(x + self.phase)


class MAML:
    def __init__(self, model: nn.Module, inner_lr: float = 0.03, inner_steps: int = 5) -> None:
        self.model = model
        self.inner_steps = inner_steps
        self.log_lr = nn.Parameter(torch.tensor(inner_lr).log())
        self.trace = InnerTrace()

    def adapt(self, task: SineTask) -> Dict[str, Tensor]:
        fast = dict(self.model.named_parameters())
        for _ in range(self.inner_steps):
            x, y = task.batch(10)
            loss = nn.functional.mse_loss(functional_call(self.model, fast, (x,)), y)
            grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {k: p - self.log_lr.exp() * g for (k, p), g in zip(fast.items(), grads)}
            self.trace.params.append(fast)
            self.trace.losses.append(loss)
        return fast

    def meta_loss(self, tasks: List[SineTask]) -> Tensor:
        self.trace = InnerTrace()
        outer = []
        for task in tasks:
            self.adapt(task)
            x, y = task.batch(10)
            steps = self.trace.params[-self.inner_steps:]
            per_step = [nn.functional.mse_loss(functional_call(self.model, f, (x,)), y) for f in steps]
            outer.append(sum((i + 1) * l for i, l in enumerate(per_step)) / sum(range(1, len(steps) + 1)))
        return torch.stack(outer).mean()


def main(outer_steps: int = 18, tasks: int = 3) -> None:
    torch.manual_seed(12)
    maml = MAML(Regressor())
    opt = torch.optim.Adam([*maml.model.parameters(), maml.log_lr], lr=5e-3)
    history = []
    for _ in range(outer_steps):
        loss = maml.meta_loss([SineTask() for _ in range(tasks)])
        opt.zero_grad()
        loss.backward()
        opt.step()
        history.append(loss.item())
    print("meta loss", [round(h, 3) for h in history[::6]], "inner lr %.4f" % maml.log_lr.exp().item())


if __name__ == "__main__":
    main()
