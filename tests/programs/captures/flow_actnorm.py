import torch
import torch.nn as nn


class ActNorm(nn.Module):
    def __init__(self, n_channels, logdet=True):
        super().__init__()
        self.register_buffer("loc", torch.zeros(1, n_channels, 1, 1))
        self.register_buffer("scale", torch.ones(1, n_channels, 1, 1))
        self.initialized = False
        self.logdet = logdet

    def initialize(self, x):
        with torch.no_grad():
            flat = x.permute(1, 0, 2, 3).flatten(1)
            mean = flat.mean(1).view(1, -1, 1, 1)
            std = flat.std(1).view(1, -1, 1, 1)
            self.loc.copy_(-mean)
            self.scale.copy_(1 / (std + 1e-6))

    def forward(self, x):
        if not self.initialized:
            self.initialize(x)
            self.initialized = True
        y = self.scale * (x + self.loc)
        if self.logdet:
            h, w = x.shape[2:]
            return y, h * w * self.scale.abs().log().sum()
        return y, None


class Coupling(nn.Module):
    def __init__(self, ch, width=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(ch // 2, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, ch, 3, padding=1)
        )

    def forward(self, x):
        a, b = x.chunk(2, 1)
        log_s, t = self.net(a).chunk(2, 1)
        s = torch.sigmoid(log_s + 2)
        return torch.cat([a, (b + t) * s], 1), s.log().flatten(1).sum(1)


class Flow(nn.Module):
    def __init__(self, ch=4, steps=2):
        super().__init__()
        self.norms = nn.ModuleList([ActNorm(ch) for _ in range(steps)])
        self.couplings = nn.ModuleList([Coupling(ch) for _ in range(steps)])

    def forward(self, x):
        total = 0
        for norm, coup in zip(self.norms, self.couplings):
            x, ld = norm(x)
            x, ld2 = coup(x.flip(1))
            total = total + ld + ld2
        return x, total


def factory():
    torch.manual_seed(2)
    return Flow().eval(), (torch.randn(4, 4, 6, 6) * 2 + 1,)
