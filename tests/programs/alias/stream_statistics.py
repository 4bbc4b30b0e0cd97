"""Single-pass statistics over a stream that is decoded into one chunk buffer."""
import math

import numpy as np
import torch


class ChunkReader:
    def __init__(self, total, chunk, seed):
        rng = np.random.default_rng(seed)
        self.raw = rng.normal(3.0, 2.0, size=(total, 3)).astype(np.float32)
        self.raw[:, 2] += 0.5 * self.raw[:, 0]
        self.chunk = chunk
        self.buffer = torch.empty(chunk, 3)

    def __iter__(self):
        for at in range(0, len(self.raw), self.chunk):
            piece = self.raw[at:at + self.chunk]
            target = self.buffer[:len(piece)]
            target.copy_(torch.from_numpy(piece))
            yield target


class Moments:
    def __init__(self, dim):
        self.n = 0
        self.mean = torch.zeros(dim, dtype=torch.float64)
        self.scatter = torch.zeros(dim, dim, dtype=torch.float64)

    def push(self, chunk):
        chunk = chunk.double()
        n, mean = len(chunk), chunk.mean(0)
        delta = mean - self.mean
        total = self.n + n
        chunk.sub_(mean)
        self.scatter.addmm_(chunk.t(), chunk)
        self.scatter.add_(torch.outer(delta, delta), alpha=self.n * n / total)
        self.mean.add_(delta, alpha=n / total)
        self.n = total

    def covariance(self):
        return self.scatter / (self.n - 1)


class Extremes:
    def __init__(self, dim):
        self.low = torch.full((dim,), math.inf)
        self.high = torch.full((dim,), -math.inf)

    def push(self, chunk):
        torch.minimum(self.low, chunk.amin(0), out=self.low)
        torch.maximum(self.high, chunk.amax(0), out=self.high)


class FirstRows:
    """Keeps the first row of every chunk as plain numbers."""

    def __init__(self):
        self.rows = []

    def push(self, chunk):
        self.rows.append(chunk[0].tolist())


def main():
    reader = ChunkReader(1000, 64, seed=5)
    sinks = [Moments(3), Extremes(3), FirstRows()]
    for chunk in reader:
        for sink in sinks:
            sink.push(chunk)
    moments, extremes, first = sinks
    whole = torch.from_numpy(reader.raw).double()
    print("mean", [round(v, 4) for v in moments.mean.tolist()])
    print("cov error", (moments.covariance() - torch.cov(whole.t())).abs().max().item() < 1e-6)
    print("range", [round(v, 3) for v in (extremes.high - extremes.low).tolist()])
    print("first rows", len({tuple(r) for r in first.rows}), round(first.rows[-1][0], 4))


if __name__ == "__main__":
    main()
