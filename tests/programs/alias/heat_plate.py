"""Heat on a plate with two buffers that change roles."""
import argparse

import torch
import torch.nn.functional as F


class Plate:
    def __init__(self, side, conductivity):
        self.front = torch.zeros(side, side)
        self.front[side // 3:side // 2, side // 3:side // 2] = 100.0
        self.back = torch.empty_like(self.front)
        self.scratch = torch.empty(side - 2, side - 2)
        self.k = conductivity

    def sweep(self):
        a, b, s = self.front, self.back, self.scratch
        torch.add(a[:-2, 1:-1], a[2:, 1:-1], out=s)
        s.add_(a[1:-1, :-2]).add_(a[1:-1, 2:])
        s.sub_(a[1:-1, 1:-1], alpha=4.0)
        b.copy_(a)
        b[1:-1, 1:-1].add_(s, alpha=self.k)
        self.front, self.back = b, a

    def change(self):
        return (self.front - self.back).abs().max().item()

    def frame(self):
        return self.front.clone()


class Film:
    def __init__(self, every):
        self.every, self.frames = every, {}

    def maybe(self, step, plate):
        if step % self.every == 0:
            self.frames[step] = plate.frame()


def reference(side, k, steps):
    field = Plate(side, k).front.double()[None, None]
    kernel = torch.tensor([[0, 1, 0], [1, -4, 1], [0, 1, 0]]).double()[None, None]
    for _ in range(steps):
        inner = F.conv2d(field, kernel)
        field = field + k * F.pad(inner, (1, 1, 1, 1))
    return field[0, 0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--side", type=int, default=24)
    args = parser.parse_args()
    plate, film = Plate(args.side, 0.2), Film(30)
    for step in range(args.steps):
        film.maybe(step, plate)
        before = plate.front.clone()
        plate.sweep()
        plate.last_change = (plate.front - before).abs().max().item()
    for step, frame in film.frames.items():
        print(step, f"hottest {frame.max().item():.4f} mean {frame.mean().item():.4f}")
    print(f"last change {plate.change():.5f}")
    gap = (plate.front - reference(args.side, 0.2, args.steps)).abs().max().item()
    print("agrees with reference", gap < 1e-3)


if __name__ == "__main__":
    main()
