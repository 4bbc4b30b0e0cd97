"""Training programs that are right, each beside a mistake that looks like it: silence."""

from __future__ import annotations

import textwrap

import pytest
from tests.check.conftest import HEAD

CLEAN = {
    "state that a walk over the modules puts back": """
        class Cell(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 3)
                self.v = 0.0
            def forward(self, x):
                self.v = torch.tanh(self.lin(x)) + self.v
                return self.v
            def reset(self):
                self.v = 0.0

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Sequential(Cell(), Cell())
            def forward(self, x):
                return self.layers(x)
            def reset_(self):
                for m in self.modules():
                    if hasattr(m, "reset"):
                        m.reset()

        net = Net()
        opt = optim.Adam(net.parameters())
        for _ in range(3):
            loss = net(torch.randn(5, 3)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            net.reset_()
    """,
    "the step moves only what has a gradient": """
        class Agent(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.pi, self.v = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)

            def forward(self, s):
                h = F.relu(self.body(s))
                return F.softmax(self.pi(h), dim=-1), self.v(h)

        agent = Agent()
        opt = optim.SGD(agent.parameters(), 0.1)
        probs, values = agent(torch.randn(6, 4))
        gain = torch.randn(6, 1) - values
        actor_loss = -(probs.log() * gain.detach()).mean()
        opt.zero_grad()
        gain.pow(2).mean().backward(retain_graph=True)
        opt.step()
        opt.zero_grad()
        actor_loss.backward()
        opt.step()
    """,
    "weights that no gradient needs": """
        net = nn.Linear(3, 1)
        opt = optim.SGD(net.parameters(), lr=0.1)
        total = 0
        for task in range(2):
            first = net(torch.randn(4, 3)).pow(2).mean()
            opt.zero_grad()
            first.backward(create_graph=True)
            opt.step()
            total = total + net(torch.randn(4, 3)).pow(2).mean()
        total.backward()
    """,
    "a list emptied between episodes": """
        policy = nn.Linear(4, 2)
        opt = optim.Adam(policy.parameters())
        saved = []
        for episode in range(3):
            for t in range(2):
                saved.append(F.log_softmax(policy(torch.randn(4)), 0)[0])
            loss = torch.stack(saved).sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            del saved[:]
    """,
    "straight-through": """
        net = nn.Linear(3, 3)
        h = net(torch.randn(2, 3))
        q = h + (h.round() - h).detach()
        q.pow(2).mean().backward()
    """,
    "a detached target": """
        net = nn.Linear(3, 1)
        value = net(torch.randn(4, 3))
        target = net(torch.randn(4, 3)).detach()
        F.mse_loss(value, target).backward()
        (value.detach() - target).abs().mean().item()
    """,
    "a gradient asked for, not read": """
        net = nn.Linear(3, 3)
        h = net(torch.randn(2, 3))
        h.sum().backward()
        if h.grad is not None:
            print("kept")
    """,
    "a gradient that is kept": """
        net = nn.Linear(3, 3)
        h = net(torch.randn(2, 3))
        h.retain_grad()
        h.sum().backward()
        print(h.grad.shape)
    """,
    "copies in a list": """
        net = nn.Linear(3, 3)
        total, seen = torch.zeros(3), []
        for _ in range(4):
            total += net(torch.randn(3)).detach()
            seen.append(total.clone())
        print(torch.stack(seen))
    """,
    "best state by copy": """
        net = nn.Linear(3, 1)
        opt = optim.SGD(net.parameters(), lr=0.1)
        best, least = None, 1e9
        for epoch in range(5):
            loss = net(torch.randn(4, 3)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            if loss.item() < least:
                least = loss.item()
                best = copy.deepcopy(net.state_dict())
        net.load_state_dict(best)
    """,
    "a target that is a copy": """
        online = nn.Linear(3, 2)
        target = copy.deepcopy(online)
        opt = optim.SGD(online.parameters(), lr=0.1)
        for _ in range(3):
            q = online(torch.randn(4, 3)).max(1)[0]
            with torch.no_grad():
                y = target(torch.randn(4, 3)).max(1)[0]
            opt.zero_grad()
            (q - y).pow(2).mean().backward()
            opt.step()
            target.load_state_dict(online.state_dict())
    """,
    "penalty with create_graph": """
        critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        x = torch.randn(2, 3, requires_grad=True)
        (g,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        (g.norm(dim=1) - 1).pow(2).mean().backward()
    """,
    "arrays written before they are used": """
        import numpy as np

        net = nn.Linear(3, 1)
        rows = np.zeros((4, 3), dtype="float32")
        rows[0] = 1.0
        rows += 1
        net(torch.from_numpy(rows)).sum().backward()
        rows *= 0
    """,
    "out= before the values are needed": """
        net, room = nn.Linear(3, 3), torch.empty(2, 3)
        torch.ones(2, 3, out=room)
        (net(torch.randn(2, 3)) * room).sum().backward()
        torch.zeros(2, 3, out=room)
    """,
    "foreach after backward": """
        net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
        net(torch.randn(2, 3)).sum().backward()
        with torch.no_grad():
            torch._foreach_mul_(list(net.parameters()), 0.9)
    """,
    "a loss that a frozen network shares": """
        net = nn.Linear(3, 3)
        with torch.no_grad():
            features = net(torch.randn(2, 3))
        head = nn.Linear(3, 1)
        head(features).mean().backward()
    """,
    "transmittance out of place": """
        net = nn.Linear(3, 4)
        alpha = torch.sigmoid(net(torch.randn(2, 3)))
        left, outs = torch.ones(2), []
        for i in range(4):
            outs.append(left * alpha[:, i])
            left = left * (1 - alpha[:, i])
        torch.stack(outs).sum().backward()
    """,
    "buffers swapped, not written": """
        cell = nn.RNNCell(3, 4)
        states = [torch.zeros(2, 4)]
        for t in range(4):
            states.append(cell(torch.randn(2, 3), states[-1]))
        torch.stack(states).sum().backward()
    """,
    "parameter replaced by a parameter": """
        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.ones(3))

            def widen(self):
                self.w = nn.Parameter(torch.cat([self.w.detach(), torch.ones(1)]))

        Layer().widen()
    """,
}


@pytest.mark.parametrize("name", CLEAN)
def test_clean(name, check):
    assert check(HEAD + textwrap.dedent(CLEAN[name])) == []


@pytest.mark.parametrize("name", CLEAN)
def test_it_really_runs(name, capsys):
    exec(compile(HEAD + textwrap.dedent(CLEAN[name]), name, "exec"), {"__name__": "program"})
