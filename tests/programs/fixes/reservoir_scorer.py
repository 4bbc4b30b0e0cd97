"""Echo-state features with a trained readout; sequences are independent."""
import torch
from torch import nn

UNITS = 24


class Reservoir:
    def __init__(self, inputs, seed, leak=0.3):
        gen = torch.Generator().manual_seed(seed)
        self.w_in = torch.randn(UNITS, inputs, generator=gen) * 0.5
        w = torch.randn(UNITS, UNITS, generator=gen)
        self.w = 0.9 * w / torch.linalg.eigvals(w).abs().max()
        self.leak = leak

    def run(self, sequence, state=torch.zeros(UNITS)):
        """Feed one sequence from rest and give the last state and the mean state."""
        total = torch.zeros(UNITS)
        for frame in sequence:
            drive = torch.tanh(self.w_in @ frame + self.w @ state)
            state.mul_(1 - self.leak).add_(drive, alpha=self.leak)
            total += state
        return torch.cat([state, total / len(sequence)])


def sequences(n, gen):
    for _ in range(n):
        kind = torch.randint(0, 2, (1,), generator=gen).item()
        t = torch.arange(12.0)
        base = torch.sin(t * (0.7 + 0.5 * kind))
        seq = torch.stack([base, base.roll(2)], dim=1) + 0.2 * torch.randn(12, 2, generator=gen)
        yield seq, float(kind)


def features(reservoir, pairs):
    rows = [reservoir.run(seq) for seq, _ in pairs]
    return torch.stack(rows), torch.tensor([k for _, k in pairs])


def fit_readout(x, y, steps=60):
    head = nn.Linear(x.shape[1], 1)
    opt = torch.optim.LBFGS(head.parameters(), lr=0.5, max_iter=steps)
    crit = nn.BCEWithLogitsLoss()

    def closure():
        opt.zero_grad()
        loss = crit(head(x).squeeze(1), y) + 1e-2 * head.weight.pow(2).sum()
        loss.backward()
        return loss

    opt.step(closure)
    return head, closure().item()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(33)
    reservoir = Reservoir(2, seed=1)
    train, test = list(sequences(40, gen)), list(sequences(20, gen))
    x, y = features(reservoir, train)
    head, loss = fit_readout(x, y)
    xt, yt = features(reservoir, test)
    with torch.no_grad():
        ce = nn.functional.binary_cross_entropy_with_logits(head(xt).squeeze(1), yt)
    print(f"feature sum {x.double().sum().item():.4f}")
    print(f"train loss {loss:.4f} test ce {ce.item():.3f}")
    print(f"first again {(reservoir.run(train[0][0]) - x[0]).abs().max().item():.6f}")


if __name__ == "__main__":
    main()
