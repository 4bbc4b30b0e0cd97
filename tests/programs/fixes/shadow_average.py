"""Noise-prediction network (tiny diffusion) with a shadow of averaged weights for sampling."""
import torch
import torch.nn as nn


class Denoiser(nn.Module):
    def __init__(self, d=2, h=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d + 1, h), nn.SiLU(), nn.Linear(h, d))

    def forward(self, x, t):
        return self.net(torch.cat([x, t.unsqueeze(1)], 1))


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {}
        for name, param in model.named_parameters():
            if param.requires_grad:
                self.shadow[name] = param

    def update(self, model):
        for name, param in model.named_parameters():
            self.shadow[name] *= self.decay
            self.shadow[name] += (1 - self.decay) * param.detach()

    def export(self):
        return {k: v.detach().clone() for k, v in self.shadow.items()}


@torch.no_grad()
def sample(model, n, steps, abar):
    x = torch.randn(n, 2)
    for i in reversed(range(steps)):
        t = torch.full((n,), i / steps)
        eps = model(x, t)
        x = (x - (1 - abar[i]).sqrt() * eps * 0.3) / (0.9 + 0.1 * abar[i])
    return x


def main(steps=8, T=5):
    torch.manual_seed(23)
    abar = torch.linspace(0.95, 0.2, T)
    angle = torch.rand(64) * 6.283
    ring = torch.stack([angle.cos(), angle.sin()], 1)
    model = Denoiser()
    ema = EMA(model, decay=0.8)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    curve = []
    for _ in range(steps):
        x0 = ring[torch.randint(0, 64, (16,))]
        ti = torch.randint(0, T, (16,))
        noise = torch.randn_like(x0)
        a = abar[ti].unsqueeze(1)
        loss = (model(a.sqrt() * x0 + (1 - a).sqrt() * noise, ti / T) - noise).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(model)
        curve.append(loss.item())
    live = sum(p.detach().abs().sum().item() for p in model.parameters())
    model.load_state_dict(ema.export())
    drawn = sample(model, 8, T, abar)
    print("RESULT", *(f"{v:.6g}" for v in curve + [live, drawn.abs().sum().item()]))


if __name__ == "__main__":
    main()
