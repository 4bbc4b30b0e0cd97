"""Modules whose forward overwrites what an op has saved, or what torch does not let be written."""

from __future__ import annotations

import pytest

PROGRAMS = {
    "transmittance": """
        class Field(nn.Module):
            def __init__(self):
                super().__init__(); self.a = nn.Linear(3, 4)
            def forward(self, x):
                alpha = torch.sigmoid(self.a(x))
                T = torch.ones(x.shape[0])
                outs = []
                for i in range(4):
                    outs.append(T * alpha[:, i])
                    T *= 1 - alpha[:, i]  # <- TS101
                return torch.stack(outs).sum()
        Field()(torch.randn(2, 3)).backward()
    """,
    "unspaced": """
        class Net(nn.Module):
            def __init__(self):
                super(Net,self).__init__()
                self.fc=nn.Linear(3,3)
            def forward(self,x):
                h=torch.sigmoid(self.fc(x))
                h+=1  # <- TS101
                return h
    """,
    "leakyrelu after tanh": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
                self.act = nn.LeakyReLU(0.1, True)
            def forward(self, x):
                for l in self.layers:
                    x = torch.tanh(l(x))
                    x = self.act(x)  # <- TS101
                return x
        Net()(torch.randn(2, 3)).sum().backward()
    """,
    "residual inplace preact": """
        class Block(nn.Module):
            def __init__(self, c):
                super().__init__()
                self.relu = nn.ReLU(inplace=True)
                self.conv1 = nn.Conv2d(c, c, 3, padding=1)
                self.conv2 = nn.Conv2d(c, c, 3, padding=1)
                self.proj = nn.Conv2d(c, c, 1)
            def forward(self, x):
                skip = self.proj(x)
                y = self.relu(x)  # <- TS101
                y = self.conv2(self.relu(self.conv1(y)))
                return y + skip
        Block(2)(nn.Conv2d(1, 2, 1)(torch.randn(1, 1, 4, 4))).sum().backward()
    """,
    "setitem view": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 4)
            def forward(self, x):
                p = self.lin(x).softmax(dim=-1)
                p[:, 0] = 0  # <- TS101
                return p / p.sum(-1, keepdim=True)
    """,
    "view write": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 4)
            def forward(self, x):
                p = torch.exp(self.lin(x))
                flat = p.view(-1)
                flat.clamp_(max=1.0)  # <- TS101
                return p
    """,
    "attr aug": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 4)
            def forward(self, x):
                self.h = torch.sigmoid(self.lin(x))
                self.h += 1.0  # <- TS101
                return self.h
        Net()(torch.randn(2, 4)).sum().backward()
    """,
    "custom fn inplace saved": """
        class Clip(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                y = x * 2
                return y
            @staticmethod
            def backward(ctx, g):
                x, = ctx.saved_tensors
                return g * x
        h = nn.Linear(2, 2)(torch.randn(3, 2))
        out = Clip.apply(h)
        h.zero_()  # <- TS101
        out.sum().backward()
    """,
    "bias index": """
        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
                self.fc.bias[0] = -1.0  # <- TS103
        Head()
    """,
    "param replaced": """
        class L(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.ones(3))
            def forward(self, x):
                self.w = self.w * 0.5  # <- TS106
                return x * self.w
        L()(torch.ones(3))
    """,
    "mask bool mul": """
        class Attn(nn.Module):
            def __init__(self):
                super().__init__()
                self.q = nn.Linear(4, 4); self.k = nn.Linear(4, 4)
            def forward(self, x, mask=None):
                s = self.q(x) @ self.k(x).transpose(-1, -2)
                p = F.softmax(s, -1)
                if mask is not None:
                    p.masked_fill_(mask, 0.0)  # <- TS101
                return p @ x
    """,
    "sqrt div": """
        class N(nn.Module):
            def __init__(self):
                super().__init__()
                self.p = nn.Linear(4, 4)
            def forward(self, x):
                h = self.p(x)
                n = torch.sqrt((h * h).sum(-1, keepdim=True))
                n += 1e-6  # <- TS101
                return h / n
    """,
    "norm clamp": """
        class N(nn.Module):
            def __init__(self):
                super().__init__()
                self.p = nn.Linear(4, 4)
            def forward(self, x):
                h = self.p(x)
                n = h.norm(dim=-1, keepdim=True)
                n.clamp_(min=1e-6)  # <- TS101
                return h / n
    """,
    "mul then zero": """
        class N(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.ones(4))
            def forward(self, x):
                h = x * 1.0
                y = self.w * h
                h[:, 0] = 0  # <- TS101
                return y
        N()(torch.randn(2, 4)).sum().backward()
    """,
    "vae std": """
        class VAE(nn.Module):
            def __init__(self):
                super().__init__()
                self.mu = nn.Linear(4, 2); self.lv = nn.Linear(4, 2); self.dec = nn.Linear(2, 4)
            def forward(self, x):
                mu, lv = self.mu(x), self.lv(x)
                std = lv.mul(0.5).exp_()
                eps = torch.randn_like(std)
                z = eps.mul(std).add_(mu)
                std += 1e-3  # <- TS101
                return self.dec(z)
        VAE()(torch.randn(2, 4)).sum().backward()
    """,
    "index add": """
        class GNN(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 4); self.gate = nn.Linear(4, 4)
            def forward(self, x, src, dst):
                h = self.lin(x)
                g = torch.sigmoid(self.gate(h))
                h.index_add_(0, dst, g[src])  # <- TS101
                return h
        GNN()(torch.randn(3, 4), torch.tensor([0, 1]), torch.tensor([1, 2])).sum().backward()
    """,
    "dropout inplace softmax": """
        class A(nn.Module):
            def __init__(self):
                super().__init__()
                self.s = nn.Linear(4, 4)
                self.drop = nn.Dropout(0.1, inplace=True)
            def forward(self, x):
                a = torch.softmax(self.s(x), -1)
                a = self.drop(a)  # <- TS101
                return a @ x
    """,
    "f relu inplace arg": """
        class A(nn.Module):
            def __init__(self):
                super().__init__()
                self.c = nn.Linear(4, 4); self.d = nn.Linear(4, 4)
            def forward(self, x):
                h = self.c(x)
                a = self.d(h)
                b = F.relu(h, inplace=True)  # <- TS101
                return a + b
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_found_at_its_line(name, found_at_its_line):
    found_at_its_line(PROGRAMS[name])
