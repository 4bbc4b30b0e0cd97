"""Loss along a random direction around a checkpoint, then more training, then the same line again."""
import torch
import torch.nn as nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class Poly(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        return self.f(x)


class Trainer:
    def __init__(self, model, x, y, lr=0.05):
        self.model, self.x, self.y = model, x, y
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.8)

    def loss(self):
        return (self.model(self.x) - self.y).pow(2).mean()

    def fit(self, steps):
        for _ in range(steps):
            self.opt.zero_grad()
            loss = self.loss()
            loss.backward()
            self.opt.step()
        return loss.item()


@torch.no_grad()
def scan(trainer, centre, direction, radii):
    values = []
    for r in radii:
        vector_to_parameters(centre + r * direction, trainer.model.parameters())
        values.append(trainer.loss().item())
    vector_to_parameters(centre, trainer.model.parameters())
    return values


def filter_normalised(model, gen):
    parts = []
    for p in model.parameters():
        d = torch.randn(p.shape, generator=gen)
        if p.ndim > 1:
            d *= (p.detach().norm(dim=1, keepdim=True) / d.norm(dim=1, keepdim=True))
        else:
            d.zero_()
        parts.append(d.reshape(-1))
    return torch.cat(parts)


def show(title, radii, values):
    print(title, " ".join(f"{r:+.1f}:{v:.4f}" for r, v in zip(radii, values)))


def main():
    torch.manual_seed(2)
    gen = torch.Generator().manual_seed(3)
    x = torch.linspace(-2, 2, 80)[:, None]
    y = x.pow(3) / 4 - x / 2 + 0.05 * torch.randn(x.shape, generator=gen)
    trainer = Trainer(Poly(), x, y)
    print(f"warm-up loss {trainer.fit(40):.5f}")
    checkpoint = parameters_to_vector(trainer.model.parameters()).detach()
    direction = filter_normalised(trainer.model, gen)
    radii = [-0.5, -0.2, 0.0, 0.2, 0.5]
    show("early", radii, scan(trainer, checkpoint, direction, radii))
    print(f"further training {trainer.fit(150):.5f}")
    final = parameters_to_vector(trainer.model.parameters()).detach()
    print(f"travelled {(final - checkpoint).norm():.5f}")
    show("early again", radii, scan(trainer, checkpoint, direction, radii))
    path = final - checkpoint
    alphas = [0.0, 0.25, 0.5, 0.75, 1.0]
    show("interpolation", alphas, scan(trainer, checkpoint, path, alphas))


if __name__ == "__main__":
    main()
