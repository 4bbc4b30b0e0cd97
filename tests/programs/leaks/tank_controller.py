"""Differentiable predictive control of a two-tank system."""
import torch
import torch.nn.functional as F


class TwoTank:
    def __init__(self, c1=0.08, c2=0.04, ts=1.0):
        self.c1, self.c2, self.ts = c1, c2, ts

    def __call__(self, h, u):
        h1, h2 = h.clamp(min=1e-3).unbind(-1)
        pump, valve = u.unbind(-1)
        d1 = self.c1 * (1 - valve) * pump - self.c2 * h1.sqrt()
        d2 = self.c1 * valve * pump + self.c2 * h1.sqrt() - self.c2 * h2.sqrt()
        return h + self.ts * torch.stack([d1, d2], -1)


class Policy(torch.nn.Module):
    def __init__(self, hidden=20):
        super().__init__()
        self.a = torch.nn.Linear(4, hidden)
        self.b = torch.nn.Linear(hidden, 2)

    def forward(self, h, ref):
        return torch.sigmoid(self.b(F.gelu(self.a(torch.cat([h, ref], -1)))))


class Problem(torch.nn.Module):
    def __init__(self, policy, plant, horizon):
        super().__init__()
        self.policy, self.plant, self.horizon = policy, plant, horizon

    def forward(self, data):
        h, ref = data["h0"], data["ref"]
        track = effort = 0.0
        for _ in range(self.horizon):
            u = self.policy(h, ref)
            h = self.plant(h, u)
            track = track + (h - ref).pow(2).mean()
            effort = effort + u.pow(2).mean()
        return {"loss": 5.0 * track / self.horizon + 0.1 * effort / self.horizon, "final_h": h}


class Trainer:
    def __init__(self, problem, optimizer, epochs, patience=30):
        self.problem, self.optimizer = problem, optimizer
        self.epochs, self.patience = epochs, patience
        self.best_loss = torch.tensor(float("inf"))
        self.bad = 0

    def train(self, loader):
        for epoch in range(self.epochs):
            for data in loader():
                output = self.problem(data)
                self.optimizer.zero_grad()
                output["loss"].backward()
                self.optimizer.step()
                improved = output["loss"].item() < self.best_loss.item()
                self.best_loss = torch.minimum(self.best_loss, output["loss"])
                self.bad = 0 if improved else self.bad + 1
            print("epoch: {}  train_loss: {:.5f}  best: {:.5f}".format(epoch, output["loss"].item(), self.best_loss.item()))
            if self.bad > self.patience:
                print("early stop")
                break
        return self.best_loss.item()


def main():
    torch.manual_seed(8)
    gen = torch.Generator().manual_seed(9)

    def loader():
        for _ in range(6):
            yield {"h0": torch.rand(16, 2, generator=gen), "ref": torch.rand(16, 1, generator=gen).expand(-1, 2)}

    policy = Policy()
    trainer = Trainer(Problem(policy, TwoTank(), horizon=6), torch.optim.AdamW(policy.parameters(), lr=5e-3), epochs=5)
    trainer.train(loader)


if __name__ == "__main__":
    main()
