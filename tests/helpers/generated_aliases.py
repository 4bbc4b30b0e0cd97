"""Random programs in which one memory has two holders, each beside its twin: what the program means.

Some share by mistake, and their twin makes copies. Others share on purpose, and are their own twin: whatever a fix
proposes for them must not change what they compute.
"""

from __future__ import annotations

import random
import textwrap

HEADER = """
import copy

import torch
from torch import nn
import torch.nn.functional as F

"""

# Name: (program with {holes}, what differs in the twin). `SHARED` ones have no difference.
MISTAKES = {
    "history": (
        """
        def train(seed):
            torch.manual_seed(seed)
            state, history = torch.randn({n}), []
            for _ in range({turns}):
                state.{write}
                history.append(state)
            return [h.sum() * 1.0 for h in history]
        """,
        [("history.append(state)", "history.append(state.clone())")],
    ),
    "repeated": (
        """
        def train(seed):
            torch.manual_seed(seed)
            cells = [torch.zeros({n})] * 3
            for i in range(3):
                cells[i].add_(torch.randn({n}) + i)
            return [c.clone() for c in cells]
        """,
        [("[torch.zeros({n})] * 3", "[torch.zeros({n}) for _ in range(3)]")],
    ),
    "by step": (
        """
        def train(seed):
            torch.manual_seed(seed)
            w, kept = torch.randn({n}, requires_grad=True), {{}}
            for step in range({turns}):
                (w * w).sum().backward()
                with torch.no_grad():
                    w -= 0.1 * w.grad
                    w.grad.zero_()
                kept[step] = w.detach()
            return [kept[step].sum() for step in range({turns})]
        """,
        [("kept[step] = w.detach()", "kept[step] = w.detach().clone()")],
    ),
    "best weights": (
        """
        def train(seed):
            torch.manual_seed(seed)
            net = nn.Linear({n}, 2)
            optimizer = torch.optim.{optimizer}(net.parameters(), lr=0.05)
            best = net.state_dict()
            for _ in range({turns}):
                optimizer.zero_grad()
                net(torch.randn(4, {n})).pow(2).mean().backward()
                optimizer.step()
            net.load_state_dict(best)
            return [p.detach().clone() for p in net.parameters()]
        """,
        [("best = net.state_dict()", "best = copy.deepcopy(net.state_dict())")],
    ),
    "anchor": (
        """
        def train(seed):
            torch.manual_seed(seed)
            net = nn.Linear({n}, 2)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
            anchor = list(net.parameters())
            for _ in range({turns}):
                optimizer.zero_grad()
                loss = net(torch.randn(4, {n})).pow(2).mean()
                loss = loss + sum((p - a).pow(2).sum() for p, a in zip(net.parameters(), anchor))
                loss.backward()
                optimizer.step()
            return [p.detach().clone() for p in net.parameters()]
        """,
        [("anchor = list(net.parameters())", "anchor = [p.detach().clone() for p in net.parameters()]")],
    ),
    "helper": (
        """
        def scaled(batch):
            out = batch.{write}
            return out

        def train(seed):
            torch.manual_seed(seed)
            net, x = nn.Linear({n}, 2), torch.randn(4, {n})
            y = scaled(x)
            loss = net(y).sum() + net(x).pow(2).sum()
            loss.backward()
            return [p.grad.clone() for p in net.parameters()]
        """,
        [("out = batch.{write}", "out = batch.clone().{write}")],
    ),
    "inplace layer": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.{layer}(inplace=True), nn.Linear({n}, {n}))

            def forward(self, x):
                return x + self.body(x)

        def train(seed):
            torch.manual_seed(seed)
            net = Net()
            net(torch.randn(4, {n}) - 0.5).pow(2).sum().backward()
            return [p.grad.clone() for p in net.parameters()]
        """,
        [("return x + self.body(x)", "return x.clone() + self.body(x.clone())"), ("inplace=True", "")],
    ),
    "hook": (
        """
        def train(seed):
            torch.manual_seed(seed)
            layer = nn.Linear({n}, {n})
            a, b = layer(torch.randn(2, {n})), layer(torch.randn(2, {n}))
            b.register_hook(lambda g: g.mul_({k}))
            (a + b).pow(2).sum().backward()
            return [p.grad.clone() for p in layer.parameters()]
        """,
        [("g.mul_({k})", "g.mul({k})")],
    ),
    "previous": (
        """
        def train(seed):
            torch.manual_seed(seed)
            value, moved = torch.randn({n}), []
            for _ in range({turns}):
                previous = value
                value.{write}
                moved.append((value - previous).abs().sum())
            return moved
        """,
        [("previous = value", "previous = value.clone()")],
    ),
    "samples": (
        """
        class Samples:
            def __init__(self):
                self.data = torch.randn(3, {n})

            def __getitem__(self, i):
                sample = self.data[i]
                sample.{write}
                return sample

        def train(seed):
            torch.manual_seed(seed)
            samples = Samples()
            return [samples[i].sum() for _ in range(3) for i in range(3)]
        """,
        [("sample = self.data[i]", "sample = self.data[i].clone()")],
    ),
}
SHARED = {
    "accumulator": """
        def add(total, x):
            total += x
            return total

        def train(seed):
            torch.manual_seed(seed)
            total = torch.zeros({n})
            for _ in range({turns}):
                total = add(total, torch.randn({n}))
            return [total]
        """,
    "moving average": """
        def train(seed):
            torch.manual_seed(seed)
            net = nn.Linear({n}, 2)
            mean = [p.detach().clone() for p in net.parameters()]
            optimizer = torch.optim.{optimizer}(net.parameters(), lr=0.05)
            for _ in range({turns}):
                optimizer.zero_grad()
                net(torch.randn(4, {n})).pow(2).mean().backward()
                optimizer.step()
                with torch.no_grad():
                    for m, p in zip(mean, net.parameters()):
                        m.lerp_(p, 0.1)
            return mean
        """,
    "tied": """
        def train(seed):
            torch.manual_seed(seed)
            first, second = nn.Linear({n}, {n}), nn.Linear({n}, {n})
            second.weight = first.weight
            (second(first(torch.randn(2, {n})))).sum().backward()
            return [first.weight.grad.clone()]
        """,
    "live view": """
        def train(seed):
            torch.manual_seed(seed)
            table = torch.zeros(4, {n})
            row = table[1]
            for _ in range({turns}):
                row.add_(torch.randn({n}))
            return [table.sum(0)]
        """,
    "two ways": """
        def train(seed):
            torch.manual_seed(seed)
            front, history = torch.randn({n}), []
            back = front
            for _ in range({turns}):
                front.{write}
                back.add_(1.0)
                history.append(front.sum())
            return history
        """,
    "ring": """
        def train(seed):
            torch.manual_seed(seed)
            ring, seen = [torch.zeros({n}) for _ in range(2)], []
            for step in range({turns}):
                slot = ring[step % 2]
                slot.copy_(torch.randn({n}))
                seen.append((ring[0] - ring[1]).sum())
            return seen
        """,
}
WRITES = ["mul_(0.5)", "add_(1.0)", "mul_(2.0).add_(0.1)", "sub_(0.3)", "clamp_(-0.5, 0.5)", "neg_()", "div_(3.0)"]
LAYERS = ["ReLU", "ELU", "Hardtanh", "SiLU"]


def alias_program(seed: int) -> tuple[str, str, str]:
    """The kind of one program, its source, and the source of what it means."""
    draw = random.Random(seed)
    kind = draw.choice([*MISTAKES, *SHARED])
    holes = {
        "n": draw.choice([2, 3, 5]),
        "turns": draw.choice([3, 4, 5]),
        "write": draw.choice(WRITES),
        "layer": draw.choice(LAYERS),
        "k": draw.choice([0, 0.5, 2.0]),
        "optimizer": draw.choice(["SGD", "Adam"]),
    }
    shape, changes = MISTAKES[kind] if kind in MISTAKES else (SHARED[kind], [])
    source = HEADER.lstrip() + textwrap.dedent(shape.format(**holes))
    meant = source
    for old, new in changes:
        assert old.format(**holes) in meant
        meant = meant.replace(old.format(**holes), new.format(**holes))
    return kind, source, meant
