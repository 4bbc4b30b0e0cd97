"""Models whose captures are wrong for reasons that must be tested to be told apart; `# <- CODE` marks the line."""

from __future__ import annotations

import numpy
import torch
from torch import nn
from torch.nn import functional


def _fixed(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


class ReferenceBatch(nn.Module):
    """With the same input in every call nothing shows."""

    def __init__(self):
        super().__init__()
        self.reference = None

    def forward(self, x):
        if self.reference is None:
            self.reference = x.mean(0)  # <- TS305
        return x - self.reference


class SeenSoFar(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = 0

    def forward(self, x):
        self.seen += x.shape[0]  # <- TS305
        return x / self.seen


class Rebound(nn.Module):
    """The write in place is kept by a trace, the binding below it is not."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sums", torch.ones(3))

    def forward(self, x):
        self.sums.add_(x.mean(0).detach())
        out = x + self.sums
        self.sums = self.sums * 0.5  # <- TS308
        return out


class SizeOfData(nn.Module):
    def forward(self, x):
        rows = x.data.size(1)  # <- TS304
        return x.sum(1) / rows


class GroupsBySize(nn.Module):
    def forward(self, x):
        kernel = torch.ones(1, 1, 3, 3).repeat(x.size(1), 1, 1, 1)
        return functional.conv2d(x, kernel, groups=x.size(1))  # <- TS304


class GroupsByName(nn.Module):
    """The size is used rightly by `view`, too: only where torch takes a plain number is it frozen."""

    def forward(self, x, weight):
        b, c, h, w = x.shape
        weight = weight.view(b * c, 1, 3, 3)
        out = functional.conv2d(
            x.view(1, b * c, h, w),
            weight,
            padding=1,
            groups=b * c,  # <- TS304
        )
        return out.view(b, c, h, w)


class TwoScales(nn.Module):
    """Neither map can have another size alone."""

    def forward(self, x, y):
        pixels = int(x.shape[2] * x.shape[3])  # <- TS304
        return (x + functional.interpolate(y, scale_factor=2.0)).flatten(2).sum(2) / pixels


class TokensOfMap(nn.Module):
    def forward(self, tokens, picture):
        height, width = picture.shape[2:]
        batch = int(tokens.shape[0])  # <- TS304
        whole = tokens.transpose(1, 2).reshape(tokens.shape[0], -1, height, width)
        return (whole * picture).sum((2, 3)) * batch


class InnocentItem(nn.Module):
    """The number that is read out is used, but not by what differs."""

    def forward(self, x, y):
        large = (y.abs().sum() > 1e9).item()
        rows = int(min(x.shape[0], 100))  # <- TS304
        table = torch.zeros(200, 3)
        table[:rows] = x[:rows]
        return table.sum(0) + large * 0 + rows


class Parts(nn.Module):
    def forward(self, x):
        parts = torch.split(x, 2)  # <- TS310
        return [part * 2 for part in parts]


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.drop = nn.Linear(3, 3), nn.Dropout(0.5)

    def forward(self, x):
        mixed = self.mix(x)
        return self.drop(mixed)  # <- TS313


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)

    def forward(self, x):
        mixed = self.mix(x)
        return self.norm(mixed)  # <- TS313


class MoreInTraining(nn.Module):
    def forward(self, x):
        if self.training:  # <- TS313
            return x, x * 2
        return x


class WrappingPointer(nn.Module):
    """With the example's batch the pointer always comes back to where it was."""

    def __init__(self):
        super().__init__()
        self.at = 0

    def forward(self, x):
        out = x + self.at
        self.at = (self.at + x.shape[0]) % 4  # <- TS305
        return out


class AskedWhileTracing(nn.Module):
    def forward(self, x):
        if torch.jit.is_tracing():
            return x.cos()
        return x.sin()  # <- TS314


class TableOfDtype(nn.Module):
    def forward(self, x):
        table = torch.zeros(x.size(0), 2, dtype=x.dtype)  # <- TS312
        table[:, 0] = x.sum(1)
        return table


class UnusedTable(nn.Module):
    """The capture leaves out the first table, which must not be taken for the second."""

    def forward(self, x):
        torch.zeros_like(x[:, :1])
        steps = torch.arange(x.size(0))
        table = torch.zeros(x.size(0), 2, dtype=x.dtype)  # <- TS312
        table[:, 0] = x.sum(1) + steps
        return table


class SizeByNumPy(nn.Module):
    def forward(self, x):
        number = numpy.prod(x.shape)  # <- TS304
        return x.flatten().topk(int(number) // 2)[0].mean()


class WithLength(nn.Module):
    def forward(self, x):
        return {"sums": x.cumsum(1), "length": x.shape[1] + 0}


class LengthAndBranch(nn.Module):
    def forward(self, x):
        return (x + 1 if x.sum() > 0 else x - 1), x.shape[1] + 0


class Unwritten(nn.Module):
    def forward(self, x):
        room = torch.empty(x.shape[0], 4)
        room[:, :3] = x
        return room.sum()


class Written(nn.Module):
    def forward(self, x):
        room = torch.empty(x.shape[0], 3)
        room[:] = x
        return room.sum(1)


class LongPipeline(nn.Module):
    """Sensitive to rounding: what the capture adds in another order is no fault."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(_fixed(32, 32))

    def forward(self, x):
        for _ in range(20):
            x = torch.tanh(x @ self.weight) * 3
        return x


class Unpacked(nn.Module):
    """Rows that Python takes one by one: TorchScript refuses another number of them."""

    def forward(self, state):
        position, speed, *rest = state  # <- TS310
        return torch.stack([position + speed, -speed, *rest])


class Steps(nn.Module):
    """Two lists of the same length: the first that is unpacked is the one to blame."""

    def forward(self, x):
        gates = x.sigmoid().split(1)  # <- TS310
        out, last = [], torch.zeros(1, x.shape[1])
        for gate, value in zip(gates, (gates[0] * x).split(1), strict=True):
            last = gate * last + value
            out.append(last)
        return torch.cat(out)


class HiddenWrite(nn.Module):
    """A trace makes the write on a tensor of its own, and goes on with what was there before."""

    def forward(self, scores, mask):
        scores = scores * 2
        scores.data.masked_fill_(mask, -9.0)  # <- TS308
        return scores.softmax(-1)


class OneHotByData(nn.Module):
    """A trace does not see `.data`; the reciprocal before it is multiplied by one, which is optimised away."""

    def forward(self, x, labels):
        x = 1 / (x + 3)
        chosen = torch.zeros_like(x).scatter_(1, labels.data.view(-1, 1), 1)  # <- TS307
        return x * chosen


class DetachedByData(nn.Module):
    def forward(self, x, labels):
        chosen = x.log_softmax(1).gather(1, labels)
        sure = chosen.data.exp()  # <- TS307
        return (1 - sure) * chosen


class SparseSize(nn.Module):
    """Sizes as a plain tuple; the dense matrix beside it has another size, and raises with the numbers exchanged."""

    def forward(self, x, edges):
        rows = x.size(0)
        ones = torch.ones(rows, 1)
        spread = torch.sparse_coo_tensor(edges, torch.ones(edges.shape[1]), torch.Size([rows, rows]))  # <- TS304
        return torch.sparse.mm(spread, ones) + x


class Halves(nn.Module):
    """As many pieces as ever, for eager: the trace keeps their length, and finds another number of them."""

    def forward(self, x):
        half = x.size(1) // 2  # <- TS304
        left, right = torch.split(x, half, dim=1)
        return left * right


class Single(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv1d(4, 4, 1)

    def forward(self, x, y):
        y = y * 2 if y.size(2) == 1 else y.sort(2).values  # <- TS304
        return self.mix(x) + self.mix(y)


class Resized(nn.Module):
    """Two inputs of one size in the example, of which one may have another."""

    def forward(self, scores, target):
        if scores.shape[1] != target.shape[1]:  # <- TS304
            scores = functional.interpolate(scores[:, None], target.shape[1])[:, 0]
        return (scores - target).square()


class MapInARow(nn.Module):
    """Only square lengths are accepted."""

    def forward(self, tokens):
        side = int(tokens.shape[1] ** 0.5)  # <- TS304
        return tokens.reshape(tokens.shape[0], side, side, -1).mean(1)


CASES = [
    (ReferenceBatch, (_fixed(4, 3),), "export"),
    (ReferenceBatch, (_fixed(4, 3),), "jit.trace"),
    (SeenSoFar, (_fixed(4, 3),), "export"),
    (Rebound, (_fixed(4, 3),), "jit.trace"),
    (SizeOfData, (_fixed(4, 3),), "jit.trace"),
    (GroupsBySize, (_fixed(2, 3, 8, 8),), "jit.trace"),
    (GroupsByName, (_fixed(2, 3, 8, 8), _fixed(2, 3, 3, 3)), "jit.trace"),
    (TwoScales, (_fixed(2, 4, 8, 8), _fixed(2, 4, 4, 4)), "jit.trace"),
    (TokensOfMap, (_fixed(2, 16, 3), _fixed(2, 3, 4, 4)), "jit.trace"),
    (InnocentItem, (_fixed(4, 3), _fixed(2)), "jit.trace"),
    (Parts, (_fixed(6, 3),), "jit.trace"),
    (Dropped, (_fixed(4, 3),), "jit.trace"),
    (Dropped, (_fixed(4, 3),), "export"),
    (Normed, (_fixed(4, 3),), "jit.trace"),
    (MoreInTraining, (_fixed(4, 3),), "jit.trace"),
    (WrappingPointer, (_fixed(4, 3),), "export"),
    (AskedWhileTracing, (_fixed(4, 3),), "jit.trace"),
    (TableOfDtype, (_fixed(4, 3),), "export"),
    (UnusedTable, (_fixed(4, 3),), "jit.trace"),
    (SizeByNumPy, (_fixed(4, 4),), "jit.trace"),
    (Unpacked, (_fixed(3, 4),), "jit.trace"),
    (Steps, (_fixed(3, 4),), "jit.trace"),
    (HiddenWrite, (_fixed(4, 3), torch.eye(4, 3) > 0), "jit.trace"),
    (OneHotByData, (_fixed(3, 4), torch.tensor([1, 2, 3])), "jit.trace"),
    (DetachedByData, (_fixed(3, 4), torch.tensor([[1], [2], [3]])), "jit.trace"),
    (Halves, (_fixed(3, 8),), "jit.trace"),
    (Single, (_fixed(2, 4, 6), _fixed(2, 4, 6)), "jit.trace"),
    (Resized, (_fixed(3, 6), _fixed(3, 6)), "jit.trace"),
    (MapInARow, (_fixed(2, 16, 3),), "jit.trace"),
    (SparseSize, (_fixed(4, 3), torch.tensor([[0, 1], [1, 0]])), "jit.trace"),
]
