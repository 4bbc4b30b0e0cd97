"""Spreads labels over a grid by synchronous sweeps."""
import torch


class Grid:
    def __init__(self, rows, cols):
        self.rows, self.cols = rows, cols
        self.neighbours = [list(self._around(i)) for i in range(rows * cols)]

    def _around(self, i):
        r, c = divmod(i, self.cols)
        for dr, dc in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            if 0 <= r + dr < self.rows and 0 <= c + dc < self.cols:
                yield (r + dr) * self.cols + c + dc


class Spreading:
    def __init__(self, grid, classes, stay):
        self.grid, self.classes, self.stay = grid, classes, stay
        self.log = []

    def initial(self, seeds):
        beliefs = torch.full((self.grid.rows, self.grid.cols, self.classes), 1.0 / self.classes)
        flat = beliefs.view(-1, self.classes)
        for node, label in seeds.items():
            flat[node] = 0.0
            flat[node, label] = 1.0
        return beliefs

    def sweep(self, beliefs, seeds):
        old = beliefs.reshape(-1, self.classes)
        new = old.contiguous()
        for node, around in enumerate(self.grid.neighbours):
            if node in seeds:
                continue
            new[node] = self.stay * old[node] + (1 - self.stay) * old[around].mean(0)
        self.log.append((new - old).abs().max().item())
        return new.view_as(beliefs)

    def run(self, seeds, sweeps):
        beliefs = self.initial(seeds)
        for _ in range(sweeps):
            beliefs = self.sweep(beliefs, seeds)
        return beliefs


def picture(beliefs):
    return ["".join(str(v) for v in row) for row in beliefs.argmax(-1).tolist()]


def main():
    spreading = Spreading(Grid(7, 9), 3, stay=0.3)
    beliefs = spreading.run({0: 0, 35: 1, 60: 2, 8: 2}, sweeps=12)
    print("\n".join(picture(beliefs)))
    print("changes", [round(v, 5) for v in spreading.log[::3]])
    print("centre", [round(v, 5) for v in beliefs[3, 4].tolist()])


if __name__ == "__main__":
    main()
