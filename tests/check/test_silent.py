"""Programs that run and are wrong: memory written behind autograd, aliases, gradients that are cut."""

from __future__ import annotations

import pytest

PROGRAMS = {
    "grad penalty no create": """
        x = torch.randn(3, requires_grad=True)
        y = torch.exp(x).sum()
        g = torch.autograd.grad(y, x)[0]  # <- TS206
        (g.pow(2).sum()).backward()
    """,
    "numpy write": """
        lin = nn.Linear(3, 3)
        x = torch.randn(2, 3)
        y = lin(x)
        a = x.numpy()
        a *= 2  # <- TS201
        y.sum().backward()
    """,
    "numpy setitem": """
        lin = nn.Linear(3, 3)
        x = torch.randn(2, 3)
        y = lin(x)
        a = x.numpy()
        a[0] = 5  # <- TS201
        y.sum().backward()
    """,
    "from numpy": """
        import numpy as np
        lin = nn.Linear(3, 3)
        a = np.ones((2, 3), dtype="float32")
        x = torch.from_numpy(a)
        y = lin(x)
        a += 1  # <- TS201
        y.sum().backward()
    """,
    "data mul": """
        lin = nn.Linear(3, 3)
        h = torch.sigmoid(lin(torch.randn(2, 3)))
        h.data.mul_(2)  # <- TS201
        h.sum().backward()
    """,
    "expand write": """
        base = torch.zeros(1, 3)
        grid = base.expand(4, 3)
        grid += torch.ones(4, 3)  # <- TS107
    """,
    "state dict best": """
        net = nn.Linear(3, 1)
        opt = optim.SGD(net.parameters(), lr=0.1)
        best = None
        best_loss = 1e9
        for epoch in range(5):
            loss = net(torch.randn(4, 3)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            if loss.item() < best_loss:
                best_loss = loss.item()
                best = net.state_dict()  # <- TS203
        net.load_state_dict(best)
    """,
    "params list snapshot": """
        net = nn.Linear(3, 1)
        opt = optim.SGD(net.parameters(), lr=0.1)
        before = list(net.parameters())
        net(torch.randn(4, 3)).sum().backward()
        opt.step()  # <- TS203
        moved = sum((a - b).abs().sum() for a, b in zip(net.parameters(), before))
        print(moved)
    """,
    "default arg": """
        def accumulate(x, state=torch.zeros(3)):
            state += x  # <- TS205
            return state
        accumulate(torch.ones(3)); accumulate(torch.ones(3))
    """,
    "target alias": """
        online = nn.Linear(3, 2)
        target = online  # <- TS203
        opt = optim.SGD(online.parameters(), lr=0.1)
        for _ in range(3):
            q = online(torch.randn(4, 3)).max(1)[0]
            with torch.no_grad():
                y = target(torch.randn(4, 3)).max(1)[0]
            loss = (q - y).pow(2).mean()
            opt.zero_grad(); loss.backward(); opt.step()
            target.load_state_dict(online.state_dict())
    """,
    "item loss": """
        net = nn.Linear(3, 1)
        opt = optim.SGD(net.parameters(), lr=0.1)
        loss = torch.tensor(net(torch.randn(4, 3)).mean().item(), requires_grad=True)  # <- TS206
        loss.backward()
    """,
    "no grad loss": """
        net = nn.Linear(3, 1)
        with torch.no_grad():
            out = net(torch.randn(4, 3))
        loss = out.mean()
        loss.backward()  # <- TS206
    """,
    "detach loss": """
        net = nn.Linear(3, 1)
        loss = net(torch.randn(4, 3)).mean().detach()  # <- TS206
        loss.backward()
    """,
    "argmax loss": """
        net = nn.Linear(3, 5)
        pred = net(torch.randn(4, 3)).argmax(1).float()
        loss = (pred - torch.ones(4)).pow(2).mean()
        loss.backward()  # <- TS206
    """,
    "clip weights": """
        critic = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        loss = critic(torch.randn(2, 3)).mean()
        for p in critic.parameters():
            p.data.clamp_(-0.01, 0.01)  # <- TS201
        loss.backward()
    """,
    "storage write": """
        lin = nn.Linear(3, 3)
        x = torch.randn(2, 3)
        y = lin(x)
        x.untyped_storage().fill_(0)  # <- TS201
        y.sum().backward()
    """,
    "dlpack": """
        lin = nn.Linear(3, 3)
        x = torch.randn(2, 3)
        y = lin(x)
        z = torch.from_dlpack(x)
        z += 1  # <- TS201
        y.sum().backward()
    """,
    "collect output list": """
        net = nn.Linear(3, 3)
        buf = torch.zeros(3)
        hist = []
        for _ in range(4):
            buf += net(torch.randn(3)).detach()
            hist.append(buf)  # <- TS203
        print(torch.stack(hist))
    """,
    "nonleaf grad": """
        net = nn.Linear(3, 3)
        h = net(torch.randn(2, 3))
        h.sum().backward()
        print(h.grad)  # <- TS206
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_found_at_its_line(name, found_at_its_line):
    found_at_its_line(PROGRAMS[name])
