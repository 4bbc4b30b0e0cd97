"""Training loops that break: steps between forward and backward, graphs walked twice, leaves written."""

from __future__ import annotations

import pytest

PROGRAMS = {
    "foreach": """
        net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
        loss = net(torch.randn(2, 3)).sum()
        with torch.no_grad():
            torch._foreach_mul_(list(net.parameters()), 0.9)  # <- TS105
        loss.backward()
    """,
    "double backward": """
        w = torch.randn(3, requires_grad=True)
        y = (w ** 2).sum()
        y.backward()
        y.backward()  # <- TS111
    """,
    "copy no grad": """
        lin = nn.Linear(3, 3)
        h = torch.tanh(lin(torch.randn(2, 3)))
        out = h * 2
        with torch.no_grad():
            h.copy_(torch.zeros(2, 3))  # <- TS101
        out.sum().backward()
    """,
    "out kw": """
        lin = nn.Linear(3, 3)
        buf = torch.empty(2, 3)
        torch.ones(2, 3, out=buf)
        y = lin(torch.randn(2, 3)) * buf
        torch.zeros(2, 3, out=buf)  # <- TS101
        y.sum().backward()
    """,
    "detach write": """
        lin = nn.Linear(3, 3)
        h = torch.sigmoid(lin(torch.randn(2, 3)))
        d = h.detach()
        d.clamp_(max=0.5)  # <- TS101
        h.sum().backward()
    """,
    "step between": """
        m = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        o = optim.Adam(m.parameters(), lr=0.1)
        x = torch.randn(5, 3)
        out = m(x)
        l1 = out.mean()
        l2 = out.pow(2).mean()
        o.zero_grad()
        l1.backward(retain_graph=True)
        o.step()  # <- TS105
        o.zero_grad()
        l2.backward()
        o.step()
    """,
    "gan shared fake": """
        G = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
        D = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())
        og = optim.Adam(G.parameters()); od = optim.Adam(D.parameters())
        bce = nn.BCELoss()
        for step in range(2):
            z = torch.randn(4, 2)
            fake = G(z)
            pred = D(fake)
            d_loss = bce(pred, torch.zeros(4, 1)) + bce(D(torch.randn(4, 3)), torch.ones(4, 1))
            od.zero_grad()
            d_loss.backward(retain_graph=True)
            od.step()  # <- TS105
            g_loss = bce(pred, torch.ones(4, 1))
            og.zero_grad()
            g_loss.backward()
            og.step()
    """,
    "lstm hidden class": """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.LSTM(3, 4)
                self.out = nn.Linear(4, 1)
                self.hidden = (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))
            def forward(self, x):
                y, self.hidden = self.rnn(x, self.hidden)
                return self.out(y)

        m = Model()
        opt = optim.Adam(m.parameters())
        for _ in range(3):
            opt.zero_grad()
            loss = m(torch.randn(5, 2, 3)).pow(2).mean()
            loss.backward()  # <- TS111
            opt.step()
    """,
    "lstm hidden retain": """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.GRU(3, 4)
                self.h = torch.zeros(1, 2, 4)
            def forward(self, x):
                y, self.h = self.rnn(x, self.h)
                return y

        m = Model()
        opt = optim.Adam(m.parameters())
        for _ in range(3):
            opt.zero_grad()
            loss = m(torch.randn(5, 2, 3)).pow(2).mean()
            loss.backward(retain_graph=True)
            opt.step()  # <- TS105
    """,
    "relu after sigmoid seq": """
        net = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.ReLU(inplace=True), nn.Linear(3, 1))
        net(torch.randn(2, 3)).sum().backward()  # <- TS101
    """,
    "dict value aug": """
        lin = nn.Linear(4, 4)
        outs = {"a": torch.sigmoid(lin(torch.randn(2, 4)))}
        outs["a"] *= 2  # <- TS101
        outs["a"].sum().backward()
    """,
    "list value aug": """
        lin = nn.Linear(4, 4)
        feats = [torch.sigmoid(lin(torch.randn(2, 4))) for _ in range(3)]
        for i in range(3):
            feats[i] += 1  # <- TS101
        torch.stack(feats).sum().backward()
    """,
    "rnn buffer rows": """
        cell = nn.RNNCell(3, 4)
        hs = torch.zeros(5, 2, 4)
        x = torch.randn(4, 2, 3)
        for t in range(4):
            hs[t + 1] = cell(x[t], hs[t])  # <- TS101
        hs.sum().backward()
    """,
    "leaf setitem": """
        w = torch.zeros(3, requires_grad=True)
        w[0] = 1.0  # <- TS103
    """,
    "leaf add": """
        w = torch.zeros(3, requires_grad=True)
        b = torch.zeros(1, requires_grad=True)
        for _ in range(3):
            loss = ((w * 2).sum() + b).pow(2).sum()
            loss.backward()
            w -= 0.1 * w.grad  # <- TS102
    """,
    "param fill": """
        class L(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.empty(3, 3))
                self.weight.fill_(0.1)  # <- TS102
            def forward(self, x):
                return x @ self.weight
        L()
    """,
    "bias fill": """
        net = nn.Linear(3, 3)
        net.bias.fill_(0.0)  # <- TS102
    """,
    "unbind write": """
        x = nn.Linear(3, 4)(torch.randn(2, 3))
        a, b = x.unbind(0)
        a += 1  # <- TS103
    """,
    "for row write": """
        x = nn.Linear(3, 4)(torch.randn(2, 3))
        for row in x:
            row *= 2  # <- TS103
    """,
    "no grad view": """
        w = torch.randn(3, 3, requires_grad=True)
        with torch.no_grad():
            v = w[0]
        v += 1  # <- TS104
    """,
    "inference": """
        net = nn.Linear(3, 3)
        with torch.inference_mode():
            feats = net(torch.randn(2, 3))
        feats += 1  # <- TS108
    """,
    "inference decorator": """
        net, head = nn.Linear(3, 3), nn.Linear(3, 1)
        @torch.inference_mode()
        def extract(x):
            return net(x)
        f = extract(torch.randn(2, 3))
        loss = head(f).sum()  # <- TS108
        loss.backward()
    """,
    "ema between": """
        student = nn.Linear(3, 3); teacher = copy.deepcopy(student)
        x = torch.randn(2, 3, requires_grad=True)
        loss = (student(x) - teacher(x)).pow(2).mean()
        with torch.no_grad():
            for a, b in zip(student.parameters(), teacher.parameters()):
                b.mul_(0.9).add_(a, alpha=0.1)  # <- TS105
        loss.backward()
    """,
    "ppo old graph": """
        policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        opt = optim.Adam(policy.parameters())
        s = torch.randn(16, 4)
        old = F.log_softmax(policy(s), -1)[:, 0]
        for epoch in range(3):
            new = F.log_softmax(policy(s), -1)[:, 0]
            ratio = (new - old).exp()
            loss = -ratio.mean()
            opt.zero_grad()
            loss.backward()  # <- TS111
            opt.step()
    """,
    "loss accumulated backward": """
        net = nn.Linear(3, 1)
        opt = optim.SGD(net.parameters(), lr=0.1)
        total = 0
        for i in range(3):
            total = total + net(torch.randn(4, 3)).pow(2).mean()
            opt.zero_grad()
            total.backward()  # <- TS111
            opt.step()
    """,
    "total aug retain": """
        net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
        opt = optim.SGD(net.parameters(), lr=0.1)
        total = 0
        for i in range(3):
            total += net(torch.randn(4, 3)).pow(2).mean()
            opt.zero_grad()
            total.backward(retain_graph=True)
            opt.step()  # <- TS105
    """,
    "resize": """
        lin = nn.Linear(3, 3)
        x = torch.randn(2, 3)
        y = lin(x)
        x.resize_(4, 3)
        x.fill_(1.0)  # <- TS101
        y.sum().backward()
    """,
    "swap rows": """
        lin = nn.Linear(3, 3)
        x = torch.randn(4, 3)
        y = lin(x)
        x[0], x[1] = x[1].clone(), x[0].clone()  # <- TS101
        y.sum().backward()
    """,
    "masked scatter": """
        emb = nn.Embedding(10, 4); proj = nn.Linear(4, 4)
        e = emb(torch.tensor([[1, 2, 3]]))
        h = proj(e)
        e[:, 0] = torch.zeros(4)  # <- TS101
        (h + e).sum().backward()
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_found_at_its_line(name, found_at_its_line):
    found_at_its_line(PROGRAMS[name])
