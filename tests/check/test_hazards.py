"""Programs that break, as people write them; the line to report ends with `# <- CODE`."""

from __future__ import annotations

import textwrap

import pytest

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F
"""

BROKEN = {
    "mask written into a gate": """
        class Gate(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.proj = nn.Linear(dim, 1)

            def forward(self, h, pad):
                gate = self.proj(h).sigmoid()
                gate[pad] = 0.0  # <- TS101
                return gate * h
    """,
    "layer kept in a list and applied in a loop": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList()
                for _ in range(3):
                    self.layers.append(nn.Linear(4, 4))

            def forward(self, x, shift):
                for layer in self.layers:
                    x = layer(x)
                    y = F.softmax(x, dim=-1)
                    y += shift  # <- TS101
                    x = y
                return x
    """,
    "in-place activation at the head of a branch": """
        class Block(nn.Module):
            def __init__(self, cin, cout):
                super().__init__()
                self.branch = nn.Sequential(nn.ReLU(True), nn.Conv2d(cin, cout, 3, padding=1))
                self.short = nn.Conv2d(cin, cout, 1)

            def forward(self, x):
                short = self.short(x)
                return self.branch(x) + short  # <- TS101
    """,
    "write in a helper": """
        def rescale(t, factor):
            t *= factor  # <- TS101

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)

            def forward(self, x):
                h = torch.tanh(self.fc(x))
                rescale(h, 2.0)
                return h
    """,
    "running state written between uses": """
        class Scan(nn.Module):
            def __init__(self):
                super().__init__()
                self.decay = nn.Parameter(torch.ones(4))

            def forward(self, xs):
                state = torch.zeros(4)
                outs = []
                for x in xs:
                    outs.append(state * self.decay)
                    state += x  # <- TS101
                return torch.stack(outs)
    """,
    "parameter scaled in forward": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(1))

            def forward(self, x):
                self.scale.clamp_(min=0.1)  # <- TS102
                return x * self.scale
    """,
    "row of an embedding zeroed": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(10, 4)
                self.reset()

            def reset(self):
                self.emb.weight[0] = 0.0  # <- TS103

            def forward(self, ids):
                return self.emb(ids)
    """,
    "split, then written": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.qkv = nn.Linear(4, 12)

            def forward(self, x):
                q, k, v = self.qkv(x).split(4, dim=-1)
                q *= 0.5  # <- TS103
                return q @ k.transpose(-2, -1) @ v
    """,
    "hidden state carried over steps": """
        cell = nn.GRUCell(3, 4)
        opt = torch.optim.Adam(cell.parameters())
        h = torch.zeros(2, 4)
        for step in range(10):
            h = cell(torch.ones(2, 3), h)
            loss = h.pow(2).mean()
            opt.zero_grad()
            loss.backward(retain_graph=True)
            opt.step()  # <- TS105
    """,
    "two optimizers in the wrong order": """
        def train(steps=3):
            gen, disc = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
            g_opt = torch.optim.SGD(gen.parameters(), lr=0.1)
            d_opt = torch.optim.SGD(disc.parameters(), lr=0.1)
            for _ in range(steps):
                fake = gen(torch.randn(5, 2))
                g_loss = -disc(fake).mean()
                d_loss = disc(fake.detach()).mean() - disc(torch.randn(5, 3)).mean()
                d_opt.zero_grad()
                d_loss.backward()
                d_opt.step()  # <- TS105
                g_opt.zero_grad()
                g_loss.backward()
                g_opt.step()
    """,
    "own optimizer class": """
        class Descent(torch.optim.Optimizer):
            def __init__(self, params):
                super().__init__(params, {})

            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        p.sub_(0.1 * p.grad)  # <- TS102

        net = nn.Linear(2, 1)
        opt = Descent(net.parameters())
        net(torch.ones(1, 2)).sum().backward()
        opt.step()
    """,
    "saved by a custom function": """
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                ctx.save_for_backward(t)
                return t * t

            @staticmethod
            def backward(ctx, g):
                return 2 * g * ctx.saved_tensors[0]

        h = nn.Linear(2, 2)(torch.ones(1, 2))
        y = Square.apply(h)
        h.add_(1)  # <- TS101
        y.sum().backward()
    """,
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name, check):
    text = HEAD + textwrap.dedent(BROKEN[name])
    line, code = next(
        (n, row.rpartition("# <- ")[2]) for n, row in enumerate(text.lstrip("\n").splitlines(), 1) if "# <- " in row
    )
    assert (code, line) in {(f.code, f.primary.line) for f in check(text)}


def test_a_finding_tells_the_whole_story(check):
    (found,) = check(HEAD + textwrap.dedent(BROKEN["mask written into a gate"]))
    assert found.certainty == "certain"
    assert found.message.startswith("`gate` was overwritten after `sigmoid` saved it")
    saved = found.span("saved")
    assert saved is not None
    assert saved.line == found.primary.line - 1


def test_what_hangs_on_the_caller_is_only_possible(check):
    text = HEAD + "def f(x):\n    y = x.exp()\n    y += 1\n    return y\n"
    assert check(text) == []
    assert [f.certainty for f in check(text, possible=True)] == ["possible"]
