"""A third-party optimizer in the Adan manner: its buffers are rewritten step by step."""
import math
import torch
import torch.nn as nn
from torch.optim import Optimizer


class NesterovAdaptive(Optimizer):
    def __init__(self, params, lr=1e-2, betas=(0.98, 0.92, 0.99), eps=1e-8, weight_decay=0.0, max_norm=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, max_norm=max_norm))

    @torch.no_grad()
    def _clip_scale(self):
        limit = self.defaults["max_norm"]
        if limit <= 0:
            return 1.0
        total = torch.zeros(1)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    total.add_(p.grad.pow(2).sum())
        return torch.clamp(limit / (total.sqrt() + group["eps"]), max=1.0).item()

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        scale = self._clip_scale()
        for group in self.param_groups:
            b1, b2, b3 = group["betas"]
            group["step"] = group.get("step", 0) + 1
            c1, c2, c3 = (1 - b ** group["step"] for b in (b1, b2, b3))
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p)
                    state["exp_avg_diff"] = torch.zeros_like(p)
                if "neg_pre_grad" not in state or group["step"] == 1:
                    state["neg_pre_grad"] = p.grad.clone().mul_(-scale)
                grad = p.grad.mul_(scale)
                diff = state["neg_pre_grad"]
                diff.add_(grad)
                state["exp_avg"].mul_(b1).add_(grad, alpha=1 - b1)
                state["exp_avg_diff"].mul_(b2).add_(diff, alpha=1 - b2)
                diff.mul_(b2).add_(grad)
                state["exp_avg_sq"].mul_(b3).addcmul_(diff, diff, value=1 - b3)
                denom = (state["exp_avg_sq"].sqrt() / math.sqrt(c3)).add_(group["eps"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.addcdiv_(state["exp_avg"], denom, value=-group["lr"] / c1)
                p.addcdiv_(state["exp_avg_diff"], denom, value=-group["lr"] * b2 / c2)
                diff.zero_().add_(grad, alpha=-1.0)
        return loss


def problem(gen):
    x = torch.randn(300, 5, generator=gen)
    y = torch.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3].abs()
    return x, y[:, None]


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    x, y = problem(gen)
    net = nn.Sequential(nn.Linear(5, 32), nn.SiLU(), nn.Linear(32, 1))
    opt = NesterovAdaptive(net.parameters(), lr=8e-3, max_norm=5.0, weight_decay=1e-3)
    for epoch in range(20):
        for idx in torch.randperm(len(x), generator=gen).split(60):
            def closure():
                opt.zero_grad()
                loss = (net(x[idx]) - y[idx]).pow(2).mean()
                loss.backward()
                return loss
            loss = opt.step(closure)
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1} loss {loss.item():.5f}")
    saved = opt.state_dict()
    print("state tensors", sum(torch.is_tensor(v) for s in saved["state"].values() for v in s.values()))
    print(f"final mse {(net(x) - y).pow(2).mean().item():.5f}")


if __name__ == "__main__":
    main()
