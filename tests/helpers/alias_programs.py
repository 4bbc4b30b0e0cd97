"""Programs in which one memory has two holders: how the alias arises, where it is kept, how it is written and read.

Every program is a text with one hole. Filled with nothing the memory is shared, filled with a copy it is not: the two
print different numbers exactly where the alias is visible, so that the truth is measured and not asserted.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from alias_objects import MORE

HOLE = "<copy>"
# What is shared, and what is meant: `<list(grads)|[g.clone() for g in grads]>`.
_CHOICE = re.compile(r"<([^<>|]*)\|([^<>|]*)>")
HEADER = """
import collections
import copy
import dataclasses
import functools
import types
import typing

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
"""


@dataclass(frozen=True)
class AliasProgram:
    kind: str
    parts: tuple[str, ...]
    text: str

    def shared(self) -> str:
        return HEADER + _CHOICE.sub(r"\1", self.text.replace(HOLE, ""))

    def copied(self) -> str:
        return HEADER + _CHOICE.sub(r"\2", self.text.replace(HOLE, ".clone()"))


# How a second holder comes by the memory of a tensor `{t}`.
TAKEN = ("{t}", "{t}.detach()", "{t}.data", "{t}.view(-1)", "{t}.reshape(-1)", "{t}.contiguous()", "{t}.cpu()")
TAKEN += ("{t}.float()", "{t}.to('cpu')", "torch.as_tensor({t})", "{t}[:]", "{t}.flatten()", "{t}.squeeze()")
# Ways to write it: the line, and whether it brings in data.
WRITES = ("{t} += 1.5", "{t}.mul_(0.5).add_(1)", "{t}[:] = torch.rand(4)", "{t}.copy_(torch.rand(4))")
WRITES += ("torch.add({t}, 2.0, out={t})", "{t}.data.add_(1)", "{t}[1:3] = 7.0", "{t}.clamp_(min=1.0).mul_(3)")


def _pick(rng: random.Random, *choices: str) -> str:
    return rng.choice(choices)


def history(rng: random.Random) -> tuple[tuple[str, ...], str]:
    take, write = rng.choice(TAKEN).format(t="state"), rng.choice(WRITES).format(t="state")
    keep, read = rng.choice(
        (
            ("log = []|log.append({v})", "torch.stack(log).sum(1)"),
            ("log = {}|log[step] = {v}", "[log[k].sum().item() for k in sorted(log)]"),
            ("log = collections.deque(maxlen=8)|log.append({v})", "[v.sum().item() for v in log]"),
            ("log = []|log.append((step, {v}))", "[v.mean().item() for _, v in log]"),
            ("log = []|log.append({'at': step, 'value': {v}})", "[e['value'].sum().item() for e in log]"),
            ("log = collections.defaultdict(list)|log['x'].append({v})", "torch.stack(log['x']).sum(1)"),
            ("log = []|log.insert(0, {v})", "sum(v.sum().item() * (i + 1) for i, v in enumerate(log))"),
            ("log = [None] * 4|log[step] = {v}", "[v.sum().item() for v in log]"),
        )
    )
    first, put = keep.split("|")
    put = put.replace("{v}", f"{take}{HOLE}")
    where = _pick(rng, "function", "method", "helper", "several")
    if where == "method":
        attribute = first.split(" = ")
        text = f"""
class Recorder:
    def __init__(self):
        self.{attribute[0]} = {attribute[1]}

    def note(self, step, state):
        self.{put}


def main():
    recorder, state = Recorder(), torch.zeros(4)
    for step in range(4):
        {write}
        recorder.note(step, state)
    log = recorder.log
    return {read}
"""
    elif where == "helper":
        text = f"""
def advance(state):
    {write}


def main():
    state = torch.zeros(4)
    {first}
    for step in range(4):
        advance(state)
        {put}
    return {read}
"""
    else:
        times = 3 if where == "several" else 1
        lines = "\n        ".join([write] * times)
        text = f"""
def main():
    state = torch.zeros(4)
    {first}
    for step in range(4):
        {lines}
        {put}
    return {read}
"""
    return (take, first, write, where), text + "\n\nprint(main())\n"


def compared(rng: random.Random) -> tuple[tuple[str, ...], str]:
    take = rng.choice(("{t}", "{t}.detach()", "{t}.data", "{t}.contiguous()", "{t}.cpu()", "{t}.float()")).format(t="x")
    write = rng.choice(WRITES).format(t="x")
    read = _pick(rng, "(x - old).abs().sum()", "F.mse_loss(x, old)", "torch.dist(x, old)", "x.sub(old).norm()")
    where = _pick(rng, "local", "attribute", "item", "helper")
    if where == "attribute":
        body = f"""
class Solver:
    def __init__(self):
        self.x = torch.ones(4)

    def step(self):
        self.old = {take.replace("x", "self.x", 1)}{HOLE}
        {write.replace("x", "self.x").replace("maself.x", "max")}
        return {read.replace("x", "self.x").replace("old", "self.old").replace("ma" + "self.x", "max")}


def main():
    solver = Solver()
    return [solver.step().item() for _ in range(3)]
"""
    elif where == "item":
        body = f"""
def main():
    x, kept, out = torch.ones(4), {{}}, []
    for _ in range(3):
        kept['old'] = {take}{HOLE}
        {write}
        out.append({read.replace("old", "kept['old']")}.item())
    return out
"""
    elif where == "helper":
        body = f"""
def update(x):
    {write}


def main():
    x, out = torch.ones(4), []
    for _ in range(3):
        old = {take}{HOLE}
        update(x)
        out.append({read}.item())
    return out
"""
    else:
        body = f"""
def main():
    x, out = torch.ones(4), []
    for _ in range(3):
        old = {take}{HOLE}
        {write}
        out.append({read}.item())
    return out
"""
    return (take, write, read, where), body + "\n\nprint(main())\n"


def restored(rng: random.Random) -> tuple[tuple[str, ...], str]:
    kept, restore = rng.choice(
        (
            ("{n: p.detach()<copy> for n, p in net.named_parameters()}", "net.load_state_dict(kept)"),
            ("{n: v<copy> for n, v in net.state_dict().items()}", "net.load_state_dict(kept)"),
            (
                "[p.data<copy> for p in net.parameters()]",
                "for p, k in zip(net.parameters(), kept):\n        p.data.copy_(k)",
            ),
            (
                "[p.detach()<copy> for p in net.parameters()]",
                "with torch.no_grad():\n        for p, k in zip(net.parameters(), kept):\n            p.copy_(k)",
            ),
            (
                "{n: p.data<copy> for n, p in net.named_parameters()}",
                "for n, p in net.named_parameters():\n        p.data.copy_(kept[n])",
            ),
        )
    )
    make = _pick(rng, "SGD(net.parameters(), lr=0.1)", "Adam(net.parameters(), lr=0.1)", "AdamW(net.parameters())")
    steps = rng.choice((1, 2, 5))
    text = f"""
def main():
    net, x = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)), torch.randn(6, 4)
    opt = torch.optim.{make}
    kept = {kept}
    for _ in range({steps}):
        opt.zero_grad()
        net(x).pow(2).mean().backward()
        opt.step()
    {restore}
    return net(x).sum().item()


print(main())
"""
    return (kept, restore, make, str(steps)), text


def stored(rng: random.Random) -> tuple[tuple[str, ...], str]:
    """Data that is changed where it is stored: the second epoch sees other samples."""
    store, get = rng.choice(
        (
            ("self.data = torch.rand(5, 4) + 1", "self.data[i]"),
            ("self.data = [torch.rand(4) + 1 for _ in range(5)]", "self.data[i]"),
            ("self.data = {i: torch.rand(4) + 1 for i in range(5)}", "self.data[i]"),
            ("self.data = torch.rand(5, 4) + 1", "self.data.select(0, i)"),
            ("self.data = torch.rand(20) + 1", "self.data.narrow(0, 4 * i, 4)"),
            ("self.data = (torch.rand(5, 4) + 1).unbind(0)", "self.data[i]"),
            ("self.data = [(torch.rand(4) + 1, i) for i in range(5)]", "self.data[i][0]"),
        )
    )
    change = _pick(
        rng, "row /= 2", "row.sub_(0.5).div_(2.0)", "row *= self.scale", "row.mul_(self.scale)", "row.pow_(2)"
    )
    visit = _pick(rng, "loader", "loop", "helper")
    if visit == "helper":
        body = f"        return prepared({get}{HOLE}, self.scale)"
        helper = f"\n\ndef prepared(row, scale):\n    {change.replace('self.scale', 'scale')}\n    return row\n"
    else:
        body = f"        row = {get}{HOLE}\n        {change}\n        return row"
        helper = ""
    use = (
        "[b.sum().item() for b in torch.utils.data.DataLoader(data, batch_size=2)]"
        if visit == "loader"
        else "[data[i].sum().item() for i in range(5)]"
    )
    text = f"""
class Data(torch.utils.data.Dataset):
    def __init__(self):
        {store}
        self.scale = torch.tensor(0.5)

    def __len__(self):
        return 5

    def __getitem__(self, i):
{body}
{helper}

def main():
    data, out = Data(), []
    for epoch in range(3):
        out.append({use})
    return out


print(main())
"""
    return (store, get, change, visit), text


def kept_by_code(rng: random.Random) -> tuple[tuple[str, ...], str]:
    """Defaults, class attributes, cached results, constants of the module."""
    change = rng.choice(("t += x", "t.add_(x)", "t.mul_(0.5).add_(x)", "t[0] += x.sum()", "t -= x"))
    where = rng.choice(
        ("default", "default in a dict", "default in an object", "class", "cache", "constant", "keyword")
    )
    if where in ("default", "keyword"):
        star = "*, " if where == "keyword" else ""
        text = f"""
def smooth(x, {star}memory=torch.zeros(4)):
    t = memory{HOLE}
    {change}
    return t.sum() * 2


def main():
    return [smooth(torch.ones(4)).item() for _ in range(4)]
"""
    elif where == "default in a dict":
        text = f"""
def smooth(x, state={{'t': [torch.zeros(4)]}}):
    t = state['t'][0]{HOLE}
    {change}
    return t.sum() * 2


def main():
    return [smooth(torch.ones(4)).item() for _ in range(4)]
"""
    elif where == "default in an object":
        text = f"""
class State:
    def __init__(self):
        self.t = torch.zeros(4)


class Layer:
    def run(self, x, state=State()):
        t = state.t{HOLE}
        {change}
        return t.sum() * 2


def main():
    layer = Layer()
    return [layer.run(torch.ones(4)).item() for _ in range(4)]
"""
    elif where == "class":
        text = f"""
class Meter:
    total = torch.zeros(4)

    def update(self, x):
        t = self.total{HOLE}
        {change.replace("t ", "self.total ", 1).replace("t.", "self.total.", 1).replace("t[", "self.total[", 1)}
        return self.total.sum().item()


def main():
    a, b = Meter(), Meter()
    return [m.update(torch.ones(4)) for m in (a, a, b, b)]
""".replace(f"t = self.total{HOLE}", f"self.total = self.total{HOLE}" if HOLE else "")
    elif where == "cache":
        text = f"""
@functools.lru_cache(maxsize=None)
def table(n):
    return torch.arange(float(n)) + 1


def used(x):
    t = table(4){HOLE}
    {change}
    return t.sum().item()


def main():
    return [used(torch.ones(4)) for _ in range(4)]
"""
    else:
        text = f"""
BASE = torch.ones(4)


def masked(x, n):
    t = BASE{HOLE}
    t[:n] = 0
    return (x * t).sum().item()


def main():
    return [masked(torch.ones(4), n) for n in (3, 1, 2, 0)]
"""
    return (where, change), text + "\n\nprint(main())\n"


def returned(rng: random.Random) -> tuple[tuple[str, ...], str]:
    fill = _pick(
        rng,
        "torch.mul(x, 2, out=self.buffer)",
        "self.buffer.copy_(x * 2)",
        "self.buffer[:] = x * 2",
        "torch.neg(x, out=self.buffer)",
    )
    use = _pick(
        rng, "(a * b).sum()", "torch.stack([a, b])", "F.cosine_similarity(a, b, 0)", "a - 2 * b", "torch.cat((a, b))"
    )
    call = _pick(rng, "__call__", "encode", "generator")
    if call == "generator":
        text = f"""
def chunks(x):
    buffer = torch.empty(4)
    for row in x:
        {fill.replace("self.", "").replace("(x", "(row").replace("= x", "= row")}
        yield buffer{HOLE}


def main():
    source = chunks(torch.rand(3, 4))
    a = next(source)
    b = next(source)
    return {use}
"""
    else:
        name = "" if call == "__call__" else f".{call}"
        text = f"""
class Encoder:
    def __init__(self):
        self.buffer = torch.empty(4)

    def {call}(self, x):
        {fill}
        return self.buffer{HOLE}


class Pair:
    def __init__(self):
        self.encoder = Encoder()

    def score(self, left, right):
        a = self.encoder{name}(left)
        b = self.encoder{name}(right)
        return {use}


def main():
    return Pair().score(torch.rand(4), torch.rand(4))
"""
    return (fill, use, call), text + "\n\nprint(main())\n"


def callers(rng: random.Random) -> tuple[tuple[str, ...], str]:
    change = _pick(
        rng, "x -= x.mean()", "x.mul_(0.5)", "x[x < 0] = 0.0", "x.clamp_(-0.1, 0.1)", "x /= x.norm()", "x.sub_(SHIFT).div_(SCALE)",
        "x += 0.1 * torch.randn_like(x)",
    )  # fmt: skip
    use = _pick(rng, "y = prepared(x{c})\n    return (y * 3 + x).sum()", "return (prepared(x{c}) + x).sum()",
                "y = prepared(x{c})\n    z = y.exp()\n    return z.sum() - x.sum()")  # fmt: skip
    how = _pick(rng, "function", "method", "layer", "nested")
    if how == "layer":
        make = _pick(
            rng,
            "nn.ReLU(inplace=True)",
            "nn.LeakyReLU(0.1, inplace=True)",
            "nn.Hardtanh(inplace=True)",
            "nn.SiLU(inplace=True)",
        )
        start = f"prepared = nn.Sequential({make}, nn.Linear(4, 4))\n"
        change = make
    elif how == "method":
        start = f"class Scaler:\n    def run(self, x):\n        {change}\n        return x * 2\n\n\nprepared = Scaler().run\n"
    elif how == "nested":
        start = f"def inner(x):\n    {change}\n    return x * 2\n\n\ndef prepared(x):\n    out = inner(x)\n    return out + 1\n"
    else:
        start = f"def prepared(x):\n    {change}\n    return x * 2\n"
    body = use.replace("{c}", HOLE)
    text = f"""
SHIFT, SCALE = torch.tensor(0.3), torch.tensor(2.0)
{start}

def main(x):
    {body}


torch.manual_seed(1)
print(main(torch.randn(5, 4)))
"""
    return (how, change, use), text


def second_name(rng: random.Random) -> tuple[tuple[str, ...], str]:
    change = _pick(
        rng, "x += 1.5", "x.mul_(2)", "x[0] = 5.0", "x.relu_()", "x = F.relu(x, inplace=True)", "x.add_(x.mean())"
    )
    use = _pick(
        rng, "return (x * old).sum()", "y = x.exp()\n    return y.sum() + old.sum()", "return torch.cat([x, old])"
    )
    text = f"""
def main(x):
    old = x{HOLE}
    {change}
    {use}


print(main(torch.randn(4)))
"""
    return (change, use), text


def exchanged(rng: random.Random) -> tuple[tuple[str, ...], str]:
    a, b = rng.choice((("x[0]", "x[1]"), ("x[:, 0]", "x[:, 2]"), ("x[0, 1]", "x[2, 2]"), ("x[:2]", "x[2:]")))
    how = rng.choice(("tuple", "temporary"))
    one_by_one = f"kept = {a}{HOLE}\n    {a} = {b}\n    {b} = kept"
    swap = f"{a}, {b} = {b}{HOLE}, {a}{HOLE}" if how == "tuple" else one_by_one
    text = f"""
def main(x):
    {swap}
    return (x * torch.arange(12.0).view(4, 3)).sum()


print(main(torch.rand(4, 3)))
"""
    return (a, b, how), text


def one_op(rng: random.Random) -> tuple[tuple[str, ...], str]:
    call = _pick(
        rng, "torch.mm(x, y<copy>, out=y)", "torch.matmul(x, y<copy>, out=y)", "torch.bmm(x[None], y[None]<copy>, out=y[None])",
        "torch.cumsum(y.t()<copy>, 0, out=y)", "y.copy_(y.t()<copy>)", "y[:, 1:] = y[:, :-1]<copy>", "y[1:, 1:] += y[:-1, :-1]<copy>",
        "torch.addmm(y<copy>, x, y<copy>, out=y)",
    )  # fmt: skip
    text = f"""
def main(x, y):
    try:
        {call}
    except RuntimeError:
        return "refused"
    return (y * torch.arange(16.0).view(4, 4)).sum()


print(main(torch.rand(4, 4), torch.rand(4, 4)))
"""
    return (call,), text


def for_its_value(rng: random.Random) -> tuple[tuple[str, ...], str]:
    op = _pick(rng, "tanh_()", "sigmoid_()", "exp_()", "mul_(0.5)", "clamp_(min=0.1)", "neg_()")
    use = _pick(rng, "h = o * c<copy>.{op}\n    return h.sum() + (c * 3).sum()", "return (o + c<copy>.{op}).sum() * c.sum()",
                "h = torch.dot(o, c<copy>.{op})\n    return h - c.norm()", "h = c<copy>.{op}\n    return (h * c).sum()")  # fmt: skip
    text = f"""
def main(o, c):
    {use.replace("{op}", op)}


print(main(torch.rand(4), torch.rand(4)))
"""
    return (op, use), text


def averaged(rng: random.Random) -> tuple[tuple[str, ...], str]:
    take = _pick(
        rng,
        "{n: p.data<copy> for n, p in net.named_parameters()}",
        "{n: p.detach()<copy> for n, p in net.named_parameters()}",
    )
    blend = _pick(rng, "self.shadow[n].mul_(0.9).add_(p.data, alpha=0.1)", "self.shadow[n].lerp_(p.detach(), 0.1)",
                  "self.shadow[n].mul_(0.5)\n            self.shadow[n].add_(p.data, alpha=0.5)")  # fmt: skip
    text = f"""
class Average:
    def __init__(self, net):
        self.shadow = {take}

    def update(self, net):
        for n, p in net.named_parameters():
            {blend}


def main():
    net, x = nn.Linear(4, 1), torch.rand(6, 4)
    opt, average = torch.optim.SGD(net.parameters(), lr=0.1), Average(net)
    for _ in range(4):
        opt.zero_grad()
        net(x).pow(2).mean().backward()
        opt.step()
        average.update(net)
    return sum(v.sum().item() for v in average.shadow.values())


print(main())
"""
    return (take, blend), text


Maker = Callable[[random.Random], tuple[tuple[str, ...], str]]
KINDS: dict[str, Maker] = {
    maker.__name__: maker
    for maker in (
        *(history, compared, restored, stored, kept_by_code, returned, callers, second_name),
        *(exchanged, one_op, for_its_value, averaged, *MORE),
    )
}


def alias_programs(each: int, seed: int = 0) -> Iterator[AliasProgram]:
    """So many different programs of each kind, the same for a given seed."""
    for kind, make in KINDS.items():
        rng, seen = random.Random(f"{seed} {kind}"), set()
        for _ in range(each * 20):
            parts, text = make(rng)
            if parts not in seen:
                seen.add(parts)
                yield AliasProgram(kind, parts, text)
            if len(seen) == each:
                break
