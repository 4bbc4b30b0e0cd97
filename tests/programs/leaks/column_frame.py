"""Variational autoencoder with a column frame of metrics at each log interval."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Frame:
    def __init__(self, *names):
        self.cols = {n: [] for n in names}

    def add_row(self, row):
        for name, col in self.cols.items():
            col += [row[name]]

    def describe(self):
        out = {}
        for name, col in self.cols.items():
            nums = [float(v) for v in col]
            out[name] = (min(nums), sum(nums) / len(nums), max(nums))
        return out


class VAE(nn.Module):
    def __init__(self, n=14, z=3):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(n, 24), nn.ReLU(), nn.Linear(24, 2 * z))
        self.dec = nn.Sequential(nn.Linear(z, 24), nn.ReLU(), nn.Linear(24, n))

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def elbo_parts(x, out):
    recon, mu, logvar = out
    rec = F.mse_loss(recon, x, reduction="none").sum(1).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return {"rec": rec, "kl": kl, "sigma": (0.5 * logvar).exp().mean()}


def patterns(n, gen):
    basis = torch.eye(14)[:4] + torch.eye(14)[4:8]
    pick = torch.randint(0, 4, (n,), generator=gen)
    return basis[pick] + 0.1 * torch.randn(n, 14, generator=gen)


def train(steps=80, every=5):
    torch.manual_seed(7)
    gen = torch.Generator().manual_seed(7)
    net, frame = VAE(), Frame("step", "rec", "kl", "sigma")
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(steps):
        x = patterns(32, gen)
        parts = elbo_parts(x, net(x))
        loss = parts["rec"] + 0.1 * parts["kl"]
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % every == 0:
            frame.add_row({"step": step, **parts})
    return frame


for name, (low, mean, high) in train().describe().items():
    print(f"{name:6s} {low:.3f} {mean:.3f} {high:.3f}")
