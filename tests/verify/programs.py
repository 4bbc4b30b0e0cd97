"""Models for the tests: factories of (model, args[, kwargs]); `# <- CODE` marks the line to be named."""

from __future__ import annotations

import dataclasses
import random

import torch
from torch import nn
from torch.nn import functional

ROUNDS = 0


def _fixed(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


class RareBranch(nn.Module):
    def forward(self, x):
        if x.mean() > 7.3:  # <- TS301
            return x * 2
        return x


def rare_branch():
    return RareBranch(), (_fixed(3, 4),)


class NarrowBranch(nn.Module):
    def forward(self, x):
        if x[0, 0] > 3.25 and x[0, 1] < -4.5:  # <- TS301
            return x * 2
        return x


def narrow_branch():
    return NarrowBranch(), (_fixed(3, 4),)


class Lengths(nn.Module):
    def forward(self, x, lengths):
        sizes = lengths.tolist()  # <- TS302
        return torch.stack([part.sum(0) for part in x.split(sizes)])


def lengths():
    return Lengths(), (_fixed(6, 4), torch.tensor([2, 4]))


class Rows(nn.Module):
    def forward(self, x):
        return torch.stack([row.sum() for row in x])  # <- TS310


def rows():
    return Rows(), (_fixed(3, 4),)


class Halved(nn.Module):
    def forward(self, x):
        keep = max(1, int(x.size(1) * 0.5))  # <- TS304
        return x.topk(keep, dim=1).values


def halved():
    return Halved(), (_fixed(3, 6),)


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = {}

    def forward(self, x):
        length = x.shape[1]
        if "any" not in self.tables:
            self.tables["any"] = torch.arange(40.0)
        self.tables["any"] = self.tables["any"] + 1
        return x + self.tables["any"][:length]  # <- TS305


def table():
    model = Table()
    model(_fixed(2, 5))
    return model, (_fixed(2, 5),)


class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1  # <- TS305
        return x * 2 if self.calls > 6 else x


def late():
    return Late(), (_fixed(2, 2),)


class GlobalCounter(nn.Module):
    def forward(self, x):
        global ROUNDS
        ROUNDS = ROUNDS + 1  # <- TS305
        return x * ROUNDS


def global_counter():
    return GlobalCounter(), (_fixed(2, 2),)


class Jitter(nn.Module):
    def forward(self, x):
        return x + random.uniform(0, 1)  # <- TS306


def jitter():
    return Jitter(), (_fixed(2, 2),)


class Same(nn.Module):
    def forward(self, x, y):
        if torch.equal(x, y):  # <- TS301
            return x
        return x + y


def same():
    return Same(), (_fixed(2, 2), _fixed(2, 2) + 1)


UNFAITHFUL = [
    rare_branch, narrow_branch, lengths, rows, halved, table, late, global_counter, jitter, same,
]  # fmt: skip


@dataclasses.dataclass
class Result:
    score: torch.Tensor
    extra: object = None


class Typed(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(4, 4)

    def forward(self, x, *, mask=None, scale=1.0):
        y = self.mix(x) * scale
        return Result(y if mask is None else y * mask)


def typed():
    return Typed(), (_fixed(3, 4),), {"mask": torch.ones(3, 1), "scale": 2.0}


class Attention(nn.Module):
    def forward(self, x):
        size = x.size(1)
        hidden = torch.ones(size, size).tril() == 0
        return (x @ x.transpose(1, 2)).masked_fill(hidden, -1e9).softmax(-1) @ x


def attention():
    return Attention(), (_fixed(2, 5, 4),)


class Picked(nn.Module):
    def forward(self, x):
        return x[x > 0], functional.pad(x, (1, 1))


def picked():
    return Picked(), (_fixed(4, 4),)


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        self.last = x.mean().detach()
        return x * 3


def remembers():
    return Remembers(), (_fixed(4, 4),)


def recurrent():
    return nn.GRU(4, 4, batch_first=True), (_fixed(2, 5, 4),)


def dropped():
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), (_fixed(2, 4),)


def eval_dropped():
    model, args = dropped()
    return model.eval(), args


def words():
    return nn.Sequential(nn.Embedding(30, 4), nn.Linear(4, 2)), (torch.tensor([[1, 2, 3], [4, 5, 6]]),)


FAITHFUL = [typed, attention, picked, remembers, recurrent, eval_dropped, words]


def raises():
    raise ValueError("no weights here")


def number():
    return 3


def broken():
    return nn.Linear(3, 3), (torch.ones(2, 4),)


class Clock(nn.Module):
    def forward(self, x):
        import os

        return x + int.from_bytes(os.urandom(2), "big")


def clock():
    return Clock(), (_fixed(2, 2),)


class Locked(nn.Module):
    def __init__(self):
        super().__init__()
        import threading

        self.lock = threading.Lock()

    def forward(self, x):
        return x


def locked():
    return Locked(), (_fixed(2, 2),)


instance = nn.Linear(3, 2)


class OnlyForOneNumber(nn.Module):
    """Takes another way for one value and size that nobody would guess."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, code):
        if x.shape[0] == 7 and int(code) == 31337:
            return self.linear(x) * 5
        return self.linear(x)


def known_to_the_author():
    example, other = (torch.randn(3, 4), torch.tensor(2)), (torch.randn(5, 4), torch.tensor(3))
    return OnlyForOneNumber().eval(), example, [other, (torch.randn(7, 4), torch.tensor(31337))]


class Reparametrised(torch.nn.Module):
    """Carries a computed weight, which `copy.deepcopy` refuses, and a branch that a trace freezes."""

    def __init__(self):
        super().__init__()
        self.direction = torch.nn.Parameter(torch.randn(2, 2))
        self.weight = self.direction / self.direction.norm()

    def forward(self, x):
        self.weight = self.direction / self.direction.norm()
        return self.weight @ x if x.mean() > 0 else -self.weight @ x


def reparametrised():
    torch.manual_seed(0)
    return Reparametrised(), (torch.ones(1, 2, 5),)
