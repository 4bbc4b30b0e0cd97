import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class RouterConfig:
    d_model: int = 16
    n_experts: int = 4
    tau_start: float = 2.0
    tau_min: float = 0.3
    anneal_rate: float = 0.25


class AnnealedRouter(nn.Module):
    """Soft mixture of experts whose temperature cools down as it is used."""

    def __init__(self, cfg: RouterConfig):
        super().__init__()
        self.cfg = cfg
        self.gate = nn.Linear(cfg.d_model, cfg.n_experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(cfg.d_model, cfg.d_model), nn.GELU()) for _ in range(cfg.n_experts)
        )
        self.num_updates = 0

    @property
    def temperature(self) -> float:
        c = self.cfg
        return max(c.tau_min, c.tau_start * math.exp(-c.anneal_rate * self.num_updates))

    def forward(self, tokens):
        weights = torch.softmax(self.gate(tokens) / self.temperature, dim=-1)
        self.num_updates += 1
        out = 0
        for k, expert in enumerate(self.experts):
            out = out + weights[..., k : k + 1] * expert(tokens)
        return out


class Encoder(nn.Module):
    def __init__(self, cfg: RouterConfig):
        super().__init__()
        self.norm = nn.LayerNorm(cfg.d_model)
        self.moe = AnnealedRouter(cfg)
        self.out = nn.Linear(cfg.d_model, 3)

    def forward(self, x):
        x = x + self.moe(self.norm(x))
        return self.out(x.mean(dim=1))


def factory():
    torch.manual_seed(11)
    return Encoder(RouterConfig()).eval(), (torch.randn(2, 9, 16),)
