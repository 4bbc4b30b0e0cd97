"""Random programs with in-place writes: chains of ops, helpers, layers, views, loops, optimizers, dtypes."""

from __future__ import annotations

import random

HEADER = """
import torch
import torch.nn.functional as F
from torch import nn


def shifted(t, amount):
    t += amount
    return t


def damped(t, other):
    u = t * other
    t.mul_(0.5)
    return u


def squashed(t):
    return torch.tanh(t)


def normalised(t):
    t -= t.mean(-1, keepdim=True)
    return t / (1 + t.pow(2).mean(-1, keepdim=True))


def make_block(inplace=True):
    return nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.ReLU(inplace))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)
        self.gate = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Hardtanh(-0.5, 0.9, inplace=True))

        self.norm = nn.LayerNorm(4)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.Tanh()), make_block()])

    def forward(self, x):
"""

FOOTER = """        return (h * g).sum() + s.sum()


def train(seed):
    torch.manual_seed(seed)
    net = Net().to(torch.{dtype})
    optimizer = torch.optim.{optimizer}(net.parameters(), lr=0.05)
    gradients = []
    for _ in range(2):
        loss = net(torch.randn(3, 4, dtype=torch.{dtype}))
{turn}        gradients.append([None if p.grad is None else p.grad.clone() for p in net.parameters()])
{end}    return gradients
"""
OPTIMIZERS = ["SGD", "Adam", "AdamW", "RMSprop"]
TURNS = {
    "plain": ["optimizer.zero_grad()", "loss.backward()"],
    "scaled loss": ["loss = loss * 0.5", "loss /= 2", "optimizer.zero_grad()", "loss.backward()"],
    "two losses": [
        "other = net(torch.randn(3, 4, dtype=torch.{dtype}))",
        "optimizer.zero_grad()",
        "(loss + other).backward()",
    ],
    "step too early": [
        "other = net(torch.randn(3, 4, dtype=torch.{dtype}))",
        "optimizer.zero_grad()",
        "loss.backward()",
        "optimizer.step()",
        "other.backward()",
    ],
}

PURE = [
    "{a} = torch.sigmoid({a})",
    "{a} = torch.tanh({b})",
    "{a} = {a} * {b}",
    "{a} = {a} + {b}",
    "{a} = self.second({a})",
    "{a} = self.gate({b})",
    "{a} = squashed({a}) * {b}",
    "{a} = torch.exp(-{a}.abs())",
    "{a} = F.softmax({b}, dim=-1)",
    "{a} = {b} / (1 + {b}.pow(2))",
    "{a} = ({a} - {b}).abs().sqrt()",
]
WRITES = [
    "{a} += {b}",
    "{a} *= 0.5",
    "{a} -= 0.1 * {b}",
    "{a} /= 1 + {b}.detach().abs()",
    "{a}.mul_({b})",
    "{a}.add_({b}, alpha=0.3)",
    "{a}.add_(1.0).clamp_(-2, 2)",
    "{a}.sigmoid_()",
    "{a}[0] = 0.5",
    "{a}[:, 1] += {b}[:, 1]",
    "{a}[1] = {a}[0] * {b}[1]",
    "{a}[{a} > 0.3] = 0.1",
    "{a}.view(-1)[3:].mul_(0.7)",
    "{a}.masked_fill_({b} > 0, 0.2)",
    "{a} = self.act({a})",
    "{b} = F.relu({a}, inplace=True)",
    "F.elu({a}, inplace=True)",
    "torch.relu_({a})",
    "{a} = shifted({a}, 0.2)",
    "shifted({a}, {b})",
    "{a} = damped({b}, {a})",
    "{b} = {a}.mul_(0.9)",
    "{a} = normalised({a})",
    "{b} = self.norm({a}); {a} += 0.1",
    "{a} = torch.add({a}, {b}, out={a}) if not {a}.requires_grad else {a}.add_({b})",
    "{a}[..., -1:].clamp_(max=0.4)",
    "{a}.data.mul_(0.9)",
    "torch.where({a} > 0, {a}, {b}, out=None).mul_(2)",
]
LOOPS = [
    ["self.kept = torch.tanh({a})", "self.kept *= 0.5", "{a} = self.kept + {b}"],
    ["parts = [torch.exp(-{a}.abs()), {b}]", "parts[0] += 1.0", "{a} = parts[0] * 0.1"],
    ["turned = {a}.t()", "turned.mul_(0.5)", "{b} = {b} * {a}"],
    ["left, right = {a}[:, :2], {a}[:, 2:]", "{b} = torch.cat([left * right, left], -1)", "right += 0.1"],
    ["for block in self.blocks:", "    {a} = block({a})", "    {a} += {b}"],
    [
        "rows = []",
        "for row in {a}:",
        "    rows.append(torch.sigmoid(row) * 2)",
        "{b} = torch.stack(rows)",
        "{b} *= {a}",
    ],
    ["{b} = torch.stack([row.exp() for row in -{a}.abs()])", "{b}[0] += 1"],
    ["for i in range(2):", "    {a}[i] = {a}[i] * {b}[i + 1]"],
    ["for i in range(3):", "    {a} += {b} * i", "    {b} = torch.tanh({a})"],
    ["for i in range(2):", "    {b} = {b} * {a}", "    {a} *= 0.8"],
    ["part = {a}[1]", "{b} = {b} * part", "{a}[1] += 1.0"],
]


def program(seed: int) -> str:
    """The source of one program; the same seed makes the same program."""
    draw = random.Random(seed)
    lines = ["h = self.first(x)", "g = torch.sigmoid(self.second(x))", "s = torch.tanh(h)"]
    for _ in range(draw.randint(2, 6)):
        a, b = draw.sample("hgs", 2)
        kind = draw.random()
        chosen = [draw.choice(PURE)] if kind < 0.35 else [draw.choice(WRITES)] if kind < 0.85 else draw.choice(LOOPS)
        lines += [line.format(a=a, b=b) for line in chosen]
    dtype = draw.choice(["float32", "float64"])
    turn = draw.choices(list(TURNS), [6, 1, 2, 1])[0]
    end = [] if turn == "step too early" else ["optimizer.step()"]
    footer = FOOTER.format(
        dtype=dtype,
        optimizer=draw.choice(OPTIMIZERS),
        turn="".join(f"        {line.format(dtype=dtype)}\n" for line in TURNS[turn]),
        end="".join(f"        {line}\n" for line in end),
    )
    return HEADER.lstrip() + "".join(f"        {line}\n" for line in lines) + footer
