import torch
from torch import nn


class Enc(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(30, 24)
        self.mu, self.lv = nn.Linear(24, 6), nn.Linear(24, 6)

    def forward(self, x):
        h = torch.relu(self.l1(x))
        return self.mu(h), self.lv(h)


class VAEGAN:
    """Three players on one forward pass: encoder, decoder and discriminator, each with its own optimizer."""

    def __init__(self):
        self.enc = Enc()
        self.dec = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 30))
        self.dis = nn.Sequential(nn.Linear(30, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
        self.o_enc = torch.optim.Adam(self.enc.parameters(), lr=2e-3)
        self.o_dec = torch.optim.Adam(self.dec.parameters(), lr=2e-3)
        self.o_dis = torch.optim.Adam(self.dis.parameters(), lr=1e-3)
        self.last = None
        self.curves = {"rec": [], "kl": [], "adv": []}

    def losses(self, x):
        mu, lv = self.enc(x)
        z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
        xr = self.dec(z)
        real, fake = self.dis(x), self.dis(xr)
        bce = nn.functional.binary_cross_entropy_with_logits
        adv_d = bce(real, torch.ones_like(real)) + bce(fake, torch.zeros_like(fake))
        adv_g = bce(fake, torch.ones_like(fake))
        rec = (xr - x).pow(2).mean()
        kl = -0.5 * (1 + lv - mu.pow(2) - lv.exp()).mean()
        return dict(rec=rec, kl=kl, adv_d=adv_d, adv_g=adv_g, sample=xr)

    def step(self, x):
        self.last = out = self.losses(x)
        for o in (self.o_enc, self.o_dec, self.o_dis):
            o.zero_grad()
        e, d, c = (list(m.parameters()) for m in (self.enc, self.dec, self.dis))
        (out["rec"] + 0.1 * out["kl"]).backward(retain_graph=True, inputs=e)
        (out["rec"] + 0.05 * out["adv_g"]).backward(retain_graph=True, inputs=d)
        out["adv_d"].backward(inputs=c)
        for o in (self.o_enc, self.o_dec, self.o_dis):
            o.step()
        self.curves["rec"].append(out["rec"].item())
        self.curves["kl"].append(out["kl"].detach())
        self.curves["adv"].append(out["adv_d"].detach().clone())


if __name__ == "__main__":
    torch.manual_seed(30)
    basis = torch.randn(4, 30)
    game = VAEGAN()
    for _ in range(36):
        game.step(torch.randn(32, 4) @ basis + 0.1 * torch.randn(32, 30))
    print({k: (round(float(v[0]), 3), round(float(v[-1]), 3)) for k, v in game.curves.items()})
