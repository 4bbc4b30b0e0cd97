"""Calibration error of a classifier for each patient group."""
import torch
from torch import nn

GROUPS = ("child", "adult", "senior")
BINS = 10


class GroupCalibration:
    def __init__(self, names):
        self.counts = dict.fromkeys(names, torch.zeros(BINS))
        self.hits = dict.fromkeys(names, torch.zeros(BINS))
        self.mass = dict.fromkeys(names, torch.zeros(BINS))

    def update(self, name, prob, target):
        slot = (prob * BINS).long().clamp_(max=BINS - 1)
        self.counts[name].index_add_(0, slot, torch.ones_like(prob))
        self.hits[name].index_add_(0, slot, target)
        self.mass[name].index_add_(0, slot, prob)

    def error(self, name):
        n = self.counts[name]
        gap = (self.hits[name] - self.mass[name]).abs()
        return (gap.sum() / n.sum()).item()

    def size(self, name):
        return int(self.counts[name].sum())


def patients(n, gen):
    group = torch.randint(3, (n,), generator=gen)
    x = torch.randn(n, 5, generator=gen)
    logit = x[:, 0] * (1.0 + group) - 0.7 * group
    y = (torch.rand(n, generator=gen) < logit.sigmoid()).float()
    return x, group, y


def fit(model, x, y, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    criterion = nn.BCEWithLogitsLoss()
    for _ in range(steps):
        loss = criterion(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(1)
    gen = torch.Generator().manual_seed(7)
    x, group, y = patients(300, gen)
    model = nn.Linear(5, 1)
    print("loss", round(fit(model, x, y, 60), 4))
    meter = GroupCalibration(GROUPS)
    with torch.no_grad():
        for _ in range(4):
            tx, tg, ty = patients(100, gen)
            prob = model(tx).squeeze(1).sigmoid()
            for i, name in enumerate(GROUPS):
                pick = tg == i
                meter.update(name, prob[pick], ty[pick])
    for name in GROUPS:
        print(f"{name:7s} patients {meter.size(name)} calibration error {meter.error(name):.4f}")


if __name__ == "__main__":
    main()
