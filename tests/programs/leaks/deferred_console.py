"""Node classification on a stochastic block model graph.

Console lines are put together lazily, so that the loop is not slowed down by formatting.
"""
from __future__ import annotations

import functools
import logging
from dataclasses import dataclass

import torch
from torch import nn

log = logging.getLogger("sbm")


@dataclass
class Options:
    nodes: int = 60
    blocks: int = 3
    hidden: int = 16
    steps: int = 26
    lr: float = 2e-2
    drop: float = 0.2


class Console:
    def __init__(self) -> None:
        self._pending: list = []

    @staticmethod
    def _line(step, loss, acc):
        return f"step {step:03d} | loss {loss:.4f} | acc {acc:.2f}"

    def defer(self, step, loss, acc) -> None:
        self._pending.append(functools.partial(self._line, step, loss, acc))

    def flush(self) -> None:
        for make in self._pending:
            log.info(make())
        self._pending.clear()


def block_model(o: Options):
    y = torch.arange(o.nodes) % o.blocks
    p = torch.where(y[:, None] == y[None, :], 0.35, 0.04)
    a = torch.bernoulli(torch.triu(p, 1))
    a = a + a.t() + torch.eye(o.nodes)
    d = a.sum(1).rsqrt()
    x = torch.randn(o.nodes, 8) + nn.functional.one_hot(y, 8).float()
    return x, d[:, None] * a * d[None, :], y


class GCN(nn.Module):
    def __init__(self, o: Options) -> None:
        super().__init__()
        self.w1 = nn.Linear(8, o.hidden)
        self.w2 = nn.Linear(o.hidden, o.blocks)
        self.drop = nn.Dropout(o.drop)

    def forward(self, x, adj):
        h = torch.relu(adj @ self.w1(x))
        return adj @ self.w2(self.drop(h))


def train(o: Options) -> GCN:
    x, adj, y = block_model(o)
    seen = torch.rand(o.nodes) < 0.4
    net, console = GCN(o), Console()
    opt = torch.optim.Adam(net.parameters(), lr=o.lr, weight_decay=5e-4)
    for step in range(o.steps):
        net.train()
        logits = net(x, adj)
        loss = nn.functional.cross_entropy(logits[seen], y[seen])
        opt.zero_grad()
        loss.backward()
        opt.step()
        acc = (logits[~seen].argmax(1) == y[~seen]).float().mean().item()
        console.defer(step, loss, acc)
    console.flush()
    return net


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(4)
    train(Options())
