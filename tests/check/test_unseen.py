"""Programs written after the engine was finished, as people report them; nothing was tuned to them but `apply`."""

from __future__ import annotations

import pytest

PROGRAMS = {
    "class trainer": """
        class Trainer:
            def __init__(self):
                self.gen = nn.Linear(2, 3)
                self.dis = nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2), nn.Linear(4, 1))
                self.og = optim.Adam(self.gen.parameters(), lr=1e-3)
                self.od = optim.Adam(self.dis.parameters(), lr=1e-3)
            def step(self, real):
                fake = self.gen(torch.randn(real.size(0), 2))
                g_loss = F.softplus(-self.dis(fake)).mean()
                d_loss = F.softplus(self.dis(fake.detach())).mean() + F.softplus(-self.dis(real)).mean()
                self.od.zero_grad()
                d_loss.backward()
                self.od.step()  # <- TS105
                self.og.zero_grad()
                g_loss.backward()
                self.og.step()
        def main():
            t = Trainer()
            for _ in range(2):
                t.step(torch.randn(4, 3))
        if __name__ == "__main__":
            main()
    """,
    "unet skip inplace": """
        class Up(nn.Module):
            def __init__(self):
                super().__init__()
                self.c1 = nn.Conv2d(2, 2, 3, padding=1)
                self.c2 = nn.Conv2d(2, 2, 3, padding=1)
                self.att = nn.Sequential(nn.Conv2d(2, 2, 1), nn.Sigmoid())
            def forward(self, x):
                s = self.c1(x)
                a = self.att(s)
                s *= a  # <- TS101
                return self.c2(s)
        Up()(torch.randn(1, 2, 4, 4)).sum().backward()
    """,
    "se scale": """
        class SE(nn.Module):
            def __init__(self, c):
                super().__init__()
                self.fc = nn.Linear(c, c)
            def forward(self, x):
                w = x.mean((2, 3))
                w = torch.sigmoid(self.fc(w))
                w[w < 0.5] = 0  # <- TS101
                return x * w[:, :, None, None]
        SE(3)(torch.randn(2, 3, 4, 4)).sum().backward()
    """,
    "bbox decode": """
        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                self.pred = nn.Conv2d(3, 4, 1)
            def forward(self, x):
                p = self.pred(x).permute(0, 2, 3, 1)
                wh = p[..., 2:4].exp()
                wh *= 8  # <- TS101
                xy = p[..., 0:2].sigmoid()
                return torch.cat([xy, wh], -1)
        Head()(torch.randn(1, 3, 4, 4)).sum().backward()
    """,
    "yolo slices": """
        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                self.pred = nn.Linear(3, 4)
            def forward(self, x):
                y = self.pred(x).sigmoid()
                y[..., 0:2] = y[..., 0:2] * 2 - 0.5  # <- TS101
                return y
        Head()(torch.randn(2, 3)).sum().backward()
    """,
    "dijkstra values": """
        net = nn.Linear(1, 4)
        cost = F.softplus(net(torch.ones(3, 1)))
        table = torch.zeros(4, 4)
        for i in range(3):
            for j in range(3):
                table[i + 1, j + 1] = cost[i, j] + torch.min(torch.stack([table[i, j], table[i, j + 1]]))
        loss = table.exp().sum() * table[3, 3]
        table.zero_()  # <- TS101
        loss.backward()
    """,
    "sinkhorn": """
        lin = nn.Linear(4, 4)
        m = torch.exp(lin(torch.randn(4, 4)))
        for _ in range(3):
            m /= m.sum(1, keepdim=True)  # <- TS101
            m /= m.sum(0, keepdim=True)
        m.trace().backward()
    """,
    "momentum encoder": """
        class MoCo(nn.Module):
            def __init__(self):
                super().__init__()
                self.q = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
                self.k = copy.deepcopy(self.q)
            @torch.no_grad()
            def update(self):
                for a, b in zip(self.q.parameters(), self.k.parameters()):
                    b.mul_(0.99).add_(a, alpha=0.01)  # <- TS105
            def forward(self, x, y):
                q = self.q(x)
                k = self.k(y)
                self.update()
                return (q * k).sum()
        m = MoCo()
        m(torch.randn(2, 4), torch.randn(2, 4)).backward()
    """,
    "clip grad value after": """
        net = nn.Linear(3, 3)
        x = torch.randn(2, 3, requires_grad=True)
        x.clamp_(0, 1)  # <- TS102
        net(x).sum().backward()
    """,
    "adv attack": """
        net = nn.Linear(3, 2)
        x = torch.rand(2, 3)
        x.requires_grad_()
        loss = F.cross_entropy(net(x), torch.tensor([0, 1]))
        loss.backward()
        x += 0.1 * x.grad.sign()  # <- TS102
    """,
    "embedding pad": """
        class T(nn.Module):
            def __init__(self):
                super().__init__()
                self.tok = nn.Embedding(10, 4)
                self.tok.weight[0].zero_()  # <- TS103
        T()
    """,
    "kaiming manual": """
        def init(m):
            if isinstance(m, nn.Linear):
                m.weight.normal_(0, 0.02)  # <- TS102
        net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        net.apply(init)
    """,
    "sgd manual": """
        net = nn.Linear(3, 1)
        for _ in range(2):
            loss = net(torch.randn(4, 3)).pow(2).mean()
            loss.backward()
            for p in net.parameters():
                p -= 0.01 * p.grad  # <- TS102
                p.grad.zero_()
    """,
    "split heads": """
        class A(nn.Module):
            def __init__(self):
                super().__init__()
                self.kv = nn.Linear(4, 8)
            def forward(self, x):
                k, v = torch.chunk(self.kv(x), 2, dim=-1)
                v.masked_fill_(v > 1, 1.0)  # <- TS103
                return k * v
    """,
    "std from var": """
        class LN(nn.Module):
            def __init__(self):
                super().__init__()
                self.g = nn.Parameter(torch.ones(4))
                self.lin = nn.Linear(4, 4)
            def forward(self, x):
                x = self.lin(x)
                mu = x.mean(-1, keepdim=True)
                sd = x.std(-1, keepdim=True)
                sd.add_(1e-5)  # <- TS101
                return self.g * (x - mu) / sd
        LN()(torch.randn(2, 4)).sum().backward()
    """,
    "retain two losses": """
        enc = nn.Linear(3, 3); h1 = nn.Linear(3, 1); h2 = nn.Linear(3, 1)
        o1 = optim.Adam(list(enc.parameters()) + list(h1.parameters())); o2 = optim.Adam(list(enc.parameters()) + list(h2.parameters()))
        z = torch.tanh(enc(torch.randn(4, 3)))
        a = h1(z).pow(2).mean(); b = h2(z).pow(2).mean()
        a.backward()
        o1.step()
        b.backward()  # <- TS111
        o2.step()
    """,
    "loop h detach missing": """
        class R(nn.Module):
            def __init__(self):
                super().__init__()
                self.c = nn.GRUCell(3, 4); self.o = nn.Linear(4, 1)
            def forward(self, x, h):
                h = self.c(x, h)
                return self.o(h), h
        r = R(); opt = optim.SGD(r.parameters(), 0.1)
        h = torch.zeros(2, 4)
        for t in range(4):
            y, h = r(torch.randn(2, 3), h)
            loss = (y ** 2).mean()
            opt.zero_grad()
            loss.backward()  # <- TS111
            opt.step()
    """,
    "relu inplace functional sigmoid": """
        class N(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(3, 3); self.b = nn.Linear(3, 3)
            def forward(self, x):
                x = F.sigmoid(self.a(x))
                x = F.relu_(x - 0) + F.relu_(x)  # <- TS101
                return self.b(x)
        N()(torch.randn(2, 3)).sum().backward()
    """,
    "tuple state": """
        class S(nn.Module):
            def __init__(self):
                super().__init__()
                self.f = nn.Linear(3, 3); self.i = nn.Linear(3, 3)
            def forward(self, xs, c):
                for x in xs:
                    f = torch.sigmoid(self.f(x)); i = torch.tanh(self.i(x))
                    c = c * f
                    f.mul_(i)  # <- TS101
                    c = c + f
                return c
        S()(torch.randn(2, 4, 3), torch.zeros(4, 3)).sum().backward()
    """,
    "dataclass buffer": """
        class Memory(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("bank", torch.randn(4, 3))
                self.q = nn.Linear(3, 3)
            def forward(self, x):
                s = self.q(x) @ self.bank.t()
                self.bank[0] = x[0].detach()  # <- TS110
                return s.softmax(-1)
        m = Memory()
        m(torch.randn(2, 3)).pow(2).sum().backward()
    """,
    "centers update": """
        class Center(nn.Module):
            def __init__(self):
                super().__init__()
                self.c = nn.Parameter(torch.zeros(5, 3))
            def forward(self, f, y):
                d = (f - self.c[y]).pow(2).sum()
                self.c[y] = self.c[y] + 0.1 * (f - self.c[y])  # <- TS103
                return d
        Center()(torch.randn(2, 3), torch.tensor([0, 1]))
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_found_at_its_line(name, found_at_its_line):
    found_at_its_line(PROGRAMS[name])
