"""Conditional GAN on short curves where both players share one generated batch."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Generator(nn.Module):
    def __init__(self, z=4, classes=3, n=12):
        super().__init__()
        self.emb = nn.Embedding(classes, z)
        self.net = nn.Sequential(nn.Linear(2 * z, 24), nn.ReLU(), nn.Linear(24, n))

    def forward(self, z, y):
        return self.net(torch.cat([z, self.emb(y)], 1))


class Judge(nn.Module):
    def __init__(self, classes=3, n=12):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n, 24), nn.LeakyReLU(0.2))
        self.real, self.emb = nn.Linear(24, 1), nn.Embedding(classes, 24)

    def forward(self, x, y):
        h = self.body(x)
        return self.real(h).squeeze(1) + (h * self.emb(y)).sum(1)


def curves(n, gen):
    y = torch.randint(0, 3, (n,), generator=gen)
    t = torch.linspace(0, 3, 12)
    return torch.sin((y[:, None] + 1) * t) + 0.05 * torch.randn(n, 12, generator=gen), y


class Match:
    def __init__(self):
        self.g, self.d = Generator(), Judge()
        self.og = torch.optim.Adam(self.g.parameters(), lr=2e-3, betas=(0.5, 0.99))
        self.od = torch.optim.Adam(self.d.parameters(), lr=2e-3, betas=(0.5, 0.99))
        self.log = {"d": [], "g": [], "real": []}

    def play(self, x, y):
        fake = self.g(torch.randn(len(x), 4), y)
        s_real, s_fake = self.d(x, y), self.d(fake, y)
        loss_d = F.softplus(-s_real).mean() + F.softplus(s_fake).mean()
        params_d = list(self.d.parameters())
        grads = torch.autograd.grad(loss_d, params_d, retain_graph=True)
        loss_g = F.softplus(-s_fake).mean()
        self.og.zero_grad()
        loss_g.backward(inputs=list(self.g.parameters()))
        for p, g in zip(params_d, grads):
            p.grad = g
        self.od.step()
        self.og.step()
        for key, value in (("d", loss_d), ("g", loss_g), ("real", s_real.mean())):
            self.log[key].append(value.item())


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    match = Match()
    for _ in range(40):
        match.play(*curves(24, gen))
    print({k: round(sum(v[-5:]) / 5, 3) for k, v in match.log.items()})


main()
