"""Programs that are right, however suspicious they look: silence."""

from __future__ import annotations

import textwrap

import pytest
from right_programs import RIGHT, SETUP

HEAD = """
import copy
import torch
from torch import nn
import torch.nn.functional as F
"""


def module(forward: str, init: str = "self.fc = nn.Linear(4, 4)") -> str:
    body = textwrap.indent(textwrap.dedent(forward).strip("\n"), " " * 4)
    return f"class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init}\n\n{body}\n"


CLEAN = {
    "op that saves nothing": module("def forward(self, x):\n    y = self.fc(x)\n    y += x\n    return y\n"),
    "result of a sum": module("def forward(self, x):\n    y = x + self.fc(x)\n    y[0] = 0\n    return y\n"),
    "write before the save": module(
        "def forward(self, x):\n    y = self.fc(x)\n    y.mul_(2)\n    return torch.exp(y)\n"
    ),
    "copy written": module("def forward(self, x):\n    y = self.fc(x).exp().clone()\n    y += 1\n    return y\n"),
    "rebound, not written": module("def forward(self, x):\n    y = self.fc(x).exp()\n    y = y + 1\n    return y\n"),
    "not on the way to the result": module(
        "def forward(self, x):\n    y = self.fc(x)\n    shown = y.exp()\n    shown += 1\n    print(shown)\n    return y\n"
    ),
    "under no_grad": module(
        "@torch.no_grad()\ndef forward(self, x):\n    y = self.fc(x).exp()\n    y += 1\n    return y\n"
    ),
    "exclusive branches": module(
        """
        def forward(self, x, gate):
            y = self.fc(x)
            if gate:
                y = y.sigmoid()
            if not gate:
                y += 1
            return y
        """
    ),
    "guarded by is_tracing": module(
        """
        def forward(self, x):
            y = self.fc(x).sigmoid()
            if torch.jit.is_tracing():
                y += 1
            return y
        """
    ),
    "advanced indexing copies": module(
        "def forward(self, x, rows):\n    y = self.fc(x).exp()\n    z = y[rows.long()]\n    z += 1\n    return y.sum() + z.sum()\n"
    ),
    "in-place relu after batch norm": module(
        "def forward(self, x):\n    return self.act(self.norm(self.fc(x)))\n",
        "self.fc, self.norm, self.act = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True)",
    ),
    "initialisation": module(
        "def reset(self):\n    with torch.no_grad():\n        self.fc.weight.mul_(2)\n        self.fc.weight[0] = 0\n    nn.init.zeros_(self.fc.bias)\n"
    ),
    "the two states of a cell": module(
        "def forward(self, x, h, c):\n    h, c = self.cell(x, (h, c))\n    h -= 1\n    return h, c\n",
        "self.cell = nn.LSTMCell(4, 4)",
    ),
    "a pooling with its indices": module(
        "def forward(self, x):\n    y, where = self.pool(self.fc(x))\n    where += 1\n    return y, where\n",
        "self.fc, self.pool = nn.Linear(4, 4), nn.MaxPool1d(2, return_indices=True)",
    ),
    "integers": module("def forward(self, x):\n    n = x.argmax(-1)\n    n += 1\n    return n\n"),
    "plain numbers and lists": module(
        """
        def forward(self, x):
            total, seen = 0, {}
            for i in range(3):
                total += i
                seen[i] = self.fc(x).exp()
            return total, seen
        """
    ),
    "frozen parameter": module(
        "def forward(self, x):\n    self.scale += 1\n    return x * self.scale\n",
        "self.scale = nn.Parameter(torch.ones(1), requires_grad=False)",
    ),
    "training loop in the right order": """
        net = nn.Linear(2, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        hidden = torch.zeros(1)
        for _ in range(3):
            loss = (net(torch.ones(1, 2)) + hidden).pow(2).mean()
            hidden = loss.detach()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    "kept twice with retain_graph": """
        net = nn.Linear(2, 1)
        out = net(torch.ones(1, 2))
        out.sum().backward(retain_graph=True)
        out.pow(2).sum().backward()
    """,
    "hidden state detached by a helper": """
        def repackage(h):
            if isinstance(h, torch.Tensor):
                return h.detach()
            return tuple(repackage(v) for v in h)

        net = nn.LSTM(3, 4)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        state = (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))
        for _ in range(3):
            state = repackage(state)
            out, state = net(torch.ones(5, 2, 3), state)
            opt.zero_grad()
            out.sum().backward()
            opt.step()
    """,
    "hidden state handed to a function of another file": """
        from helpers import repackage

        cell = nn.GRUCell(3, 4)
        opt = torch.optim.SGD(cell.parameters(), lr=0.1)
        h = torch.zeros(2, 4)
        for _ in range(3):
            h = cell(torch.ones(2, 3), repackage(h))
            opt.zero_grad()
            h.sum().backward()
            opt.step()
    """,
    "gradient with respect to the input, then a new pass": """
        net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        x = torch.ones(2, 3, requires_grad=True)
        out = net(x)
        (g,) = torch.autograd.grad(out.sum(), x, retain_graph=True)
        (out * g.detach()).sum().backward()
    """,
    "frozen backbone": """
        backbone = nn.Linear(3, 3)
        for p in backbone.parameters():
            p.requires_grad = False
        head = nn.Linear(3, 1)
        f = torch.sigmoid(backbone(torch.ones(2, 3)))
        f += 1.0
        head(f).sum().backward()
    """,
    "projection assigned to data in forward": """
        class Projected(nn.Linear):
            def forward(self, x):
                self.weight.data = self.weight.data.clamp(-0.5, 0.5)
                return super().forward(x)

        Projected(4, 4)(torch.randn(2, 4)).sum().backward()
    """,
    "gradients switched off and on again": """
        critic = nn.Linear(4, 1)
        for p in critic.parameters():
            p.requires_grad = False
        for p in critic.parameters():
            p.requires_grad = True
        critic(torch.randn(2, 4)).sum().backward()
        critic.requires_grad_(False)
        critic.requires_grad_(True)
        critic(torch.randn(2, 4)).sum().backward()
    """,
    "the state of a cell is no view": """
        cell = nn.LSTMCell(3, 5)
        hidden, state = cell(torch.randn(2, 3))
        hidden *= 0.9
        hidden.sum().backward()
    """,
    "snapshot by copy": """
        net = nn.Linear(2, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        best = copy.deepcopy(net.state_dict())
        net(torch.ones(1, 2)).sum().backward()
        opt.step()
        net.load_state_dict(best)
    """,
    "not torch at all": "def f(x):\n    x += 1\n    x[0] = 2\n    return x\n",
}


@pytest.mark.parametrize("name", CLEAN)
def test_clean(name, check):
    assert check(HEAD + textwrap.dedent(CLEAN[name])) == []


@pytest.mark.parametrize("name", RIGHT)
def test_what_runs_right_is_not_flagged(name, check):
    assert check(SETUP + textwrap.dedent(RIGHT[name])) == []
