"""The edits people would make by hand, found and proved on programs of several shapes."""

from __future__ import annotations

import textwrap

import pytest

CASES = {
    "loop-carried name": (
        """
        import torch
        layer = torch.nn.Linear(3, 3)
        h = torch.sigmoid(layer(torch.ones(2, 3)))
        for _ in range(2):
            h *= layer(torch.ones(2, 3))  # scaled
        h.sum().backward()
        """,
        "    h = h * layer(torch.ones(2, 3))  # scaled\n",
    ),
    "call of a function that writes": (
        """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        @torch.no_grad()
        def project():
            for p in net.parameters():
                p.clamp_(-0.2, 0.2)
        for _ in range(2):
            loss = net(torch.ones(2, 3)).pow(2).sum()
            opt.zero_grad()
            project()
            loss.backward()
            opt.step()
        """,
        "    loss.backward()\n    project()\n    opt.step()\n",
    ),
    "members of a list": (
        """
        import torch
        params = [torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)]
        for _ in range(2):
            fast = [p.clone() for p in params]
            grads = torch.autograd.grad((fast[0] * fast[1]).square().sum(), fast, create_graph=True)
            for p, g in zip(fast, grads):
                p.sub_(0.1 * g)
            (fast[0] * fast[1]).square().sum().backward()
        """,
        "for i, (p, g) in enumerate(zip(fast, grads)):\n",
    ),
    "value that needs parentheses": (
        """
        import torch
        w = torch.ones(3, requires_grad=True)
        h = w.exp()
        h *= w + 1
        h.sum().backward()
        """,
        "h = h * (w + 1)\n",
    ),
    "attribute": (
        """
        import torch
        class State: pass
        state = State()
        w = torch.ones(3, requires_grad=True)
        state.h = w.exp()
        state.h += 1
        state.h.sum().backward()
        """,
        "state.h = state.h + 1\n",
    ),
    "element of a list": (
        """
        import torch
        w = torch.ones(3, requires_grad=True)
        parts = [w.exp(), w.sin()]
        parts[0] += 1
        (parts[0] * parts[1]).sum().backward()
        """,
        "parts[0] = parts[0] + 1\n",
    ),
    "method": (
        """
        import torch
        w = torch.ones(3, requires_grad=True)
        h = w.tanh()
        h.mul_(
            2.0,  # twice
        )
        h.sum().backward()
        """,
        "h = h.mul(\n    2.0,  # twice\n)\n",
    ),
    "chain": (
        """
        import torch
        w = torch.ones(3, requires_grad=True)
        h = w.tanh()
        h.mul_(2.0).add_(1.0)
        h.sum().backward()
        """,
        "h = h.mul(2.0).add_(1.0)\n",
    ),
    "function with inplace=True": (
        """
        import torch
        import torch.nn.functional as F
        w = torch.ones(3, requires_grad=True)
        h = w.tanh()
        F.relu(h, inplace=True)
        h.sum().backward()
        """,
        "h = F.relu(h, inplace=False)\n",
    ),
    "positional inplace at the constructor": (
        """
        import torch
        from torch import nn
        net = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.LeakyReLU(0.1, True))
        net(torch.ones(2, 3)).sum().backward()
        """,
        "nn.LeakyReLU(0.1, False)",
    ),
    "out argument": (
        """
        import torch
        w = torch.ones(3, requires_grad=True)
        buffer = torch.ones(3)
        loss = (w * buffer).sum()
        torch.add(buffer, 1.0, out=buffer)
        (loss + (w * buffer).sum()).backward()
        """,
        "buffer = torch.add(buffer, 1.0)\n",
    ),
    "mask": (
        """
        import torch
        w = torch.randn(4, requires_grad=True)
        h = w.sigmoid()
        h[h > 0.5] = 0.0
        h.sum().backward()
        """,
        "h = h.masked_fill(h > 0.5, 0.0)\n",
    ),
    "rows of a shared array": (
        """
        import torch
        w = torch.randn(3, requires_grad=True)
        v = torch.zeros(4, 3)
        for i in range(1, 4):
            v[i] = w * v[i - 1] + 1
        v.sum().backward()
        """,
        "v[i - 1].clone()",
    ),
    "updates of leaves together": (
        """
        import torch
        w = torch.ones(3, requires_grad=True)
        b = torch.zeros(1, requires_grad=True)
        for _ in range(2):
            ((w * 2).sum() + b).pow(2).sum().backward()
            w -= 0.1 * w.grad
            b -= 0.1 * b.grad
            w.grad.zero_()
            b.grad.zero_()
        """,
        "    with torch.no_grad():\n        w -= 0.1 * w.grad\n        b -= 0.1 * b.grad\n        w.grad.zero_()\n",
    ),
    "state between batches": (
        """
        import torch
        cell = torch.nn.GRUCell(2, 3)
        h = torch.zeros(1, 3)
        for _ in range(3):
            h = cell(torch.ones(1, 2), h)
            h.sum().backward()
        """,
        "    h.sum().backward()\n    h = h.detach()\n",
    ),
    "generator under a discriminator": (
        """
        import torch
        from torch import nn
        maker, judge = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        first = torch.optim.SGD(judge.parameters(), lr=0.1)
        second = torch.optim.SGD(maker.parameters(), lr=0.1)
        for _ in range(2):
            fake = maker(torch.randn(5, 2))
            judged = judge(fake).mean() - judge(torch.randn(5, 3)).mean()
            first.zero_grad()
            judged.backward()
            first.step()
            made = -judge(fake).mean()
            second.zero_grad()
            made.backward()
            second.step()
        """,
        "judged = judge(fake.detach()).mean()",
    ),
    "features computed once": (
        """
        import torch
        body, head = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
        opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
        features = torch.tanh(body(torch.ones(5, 3)))
        for _ in range(3):
            loss = head(features).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
        "for _ in range(3):\n    features = torch.tanh(body(torch.ones(5, 3)))\n",
    ),
    "best weights beside the best loss": (
        """
        import torch
        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        lowest, best = 1e9, None
        for _ in range(4):
            loss = net(torch.ones(2, 3)).pow(2).mean()
            if loss.item() < lowest:
                lowest, best = loss.item(), net.state_dict()
            opt.zero_grad()
            loss.backward()
            opt.step()
        net.load_state_dict(best)
        """,
        "lowest, best = loss.item(), copy.deepcopy(net.state_dict())",
    ),
    "array that shares the weights": (
        """
        import torch
        layer = torch.nn.Linear(3, 3)
        loss = layer(torch.ones(2, 3, requires_grad=True)).pow(2).sum()
        array = layer.weight.detach().numpy()
        array *= 0
        loss.backward()
        """,
        ".numpy().copy()",
    ),
    "state kept by the module between batches": (
        """
        import torch
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm = torch.nn.LSTM(3, 4)
                self.hidden = (torch.zeros(1, 1, 4), torch.zeros(1, 1, 4))

            def forward(self, x):
                out, self.hidden = self.lstm(x.view(len(x), 1, -1), self.hidden)
                return out[-1]

        model = Model()
        for _ in range(2):
            model(torch.randn(5, 3)).sum().backward()
        """,
        "        self.hidden = tuple(p.detach() for p in self.hidden)\n",
    ),
    "one forward for two losses": (
        """
        import torch
        from torch import nn
        G, D = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        og = torch.optim.SGD(G.parameters(), lr=0.1)
        od = torch.optim.SGD(D.parameters(), lr=0.1)
        for _ in range(2):
            fake = G(torch.randn(5, 2))
            judged = D(fake)
            d_loss = judged.mean() - D(torch.randn(5, 3)).mean()
            g_loss = -judged.mean()
            od.zero_grad()
            d_loss.backward(retain_graph=True)
            od.step()
            og.zero_grad()
            g_loss.backward()
            og.step()
        """,
        "    g_loss.backward(inputs=list(G.parameters()))\n    od.step()\n",
    ),
    "a verdict that both losses share": (
        """
        import torch
        g, d = torch.nn.Linear(2, 3), torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        og, od = torch.optim.SGD(g.parameters(), lr=0.1), torch.optim.SGD(d.parameters(), lr=0.1)
        for _ in range(2):
            real, fake = torch.randn(4, 3), g(torch.randn(4, 2))
            judged = d(fake).mean()
            d_loss = judged - d(real).mean()
            od.zero_grad()
            d_loss.backward(retain_graph=True)
            od.step()
            g_loss = (fake - real).pow(2).mean() - judged
            og.zero_grad()
            g_loss.backward()
            og.step()
        """,
        "    od.step()\n    judged = d(fake).mean()\n",
    ),
    "weights stepped under a waiting loss": (
        """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))

        def adapted(x):
            inner = torch.optim.SGD(net.parameters(), lr=0.1)
            first = net(x).pow(2).mean()
            inner.zero_grad()
            first.backward(create_graph=True)
            inner.step()
            return first

        total = adapted(torch.ones(4, 2)) * 0.5
        total.backward()
        """,
        "torch.func.functional_call(net, {name: p.clone() for name, p in net.named_parameters()}, (x,))",
    ),
    "weights clipped before the backward": (
        """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        for _ in range(2):
            loss = net(torch.randn(4, 3)).pow(2).mean()
            for p in net.parameters():
                p.data.clamp_(-0.01, 0.01)
            loss.backward()
        """,
        "    loss.backward()\n    for p in net.parameters():\n",
    ),
    "flag of a factory": (
        """
        import torch
        from torch import nn
        def block(inplace=True):
            return nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.ReLU(inplace))
        block()(torch.ones(2, 3)).sum().backward()
        """,
        "nn.ReLU(False)",
    ),
    "two names for one memory": (
        """
        import torch
        w = torch.ones(3, requires_grad=True)
        h = w.exp()
        g = h.relu_()
        h.sigmoid_()
        (g + h).sum().backward()
        """,
        "h = h.sigmoid()\ng = h\n",
    ),
    "hook in a lambda": (
        """
        import torch
        layer = torch.nn.Linear(3, 3)
        a, b = layer(torch.ones(2, 3)), layer(torch.zeros(2, 3))
        b.register_hook(lambda g: g.mul_(0))
        (a + b).pow(2).sum().backward()
        """,
        "b.register_hook(lambda g: g.mul(0))",
    ),
    "an overlap that backward meets": (
        """
        import torch
        layer = torch.nn.Linear(3, 4)
        p = layer(torch.randn(5, 3)).softmax(-1).mean(0)
        rows = p.view(4, 1).expand(4, 4)
        columns = p.view(1, 4).expand(4, 4)
        rows[rows < 0.25] = 0.25
        columns[columns < 0.25] = 0.25
        (rows * columns.exp()).sum().backward()
        """,
        "rows = p.view(4, 1).expand(4, 4).clone()\ncolumns = p.view(1, 4).expand(4, 4).clone()\n",
    ),
    "two parts of a parameter, filled before training": (
        """
        import torch
        torch.manual_seed(0)
        head = torch.nn.Linear(3, 6)
        prior = head.bias.view(2, 3)
        prior[:, 0] += 0.5
        prior[:, 1:] -= 1.5
        for _ in range(2):
            head(torch.randn(4, 3)).pow(2).mean().backward()
        """,
        "with torch.no_grad():\n    prior[:, 1:] -= 1.5\n",
    ),
    "made in inference mode by a function": (
        """
        import torch
        layer = torch.nn.Linear(3, 3)
        @torch.inference_mode()
        def gates():
            return torch.rand(2, 3)
        kept = [gates() for _ in range(2)]
        for gate in kept:
            (layer(torch.ones(2, 3)) * gate).sum().backward()
        """,
        "@torch.no_grad()\n",
    ),
    "made in inference mode by somebody else": (
        """
        import torch
        layer = torch.nn.Linear(3, 3)
        off = torch.inference_mode
        with off():
            gate = torch.rand(2, 3)
        (layer(torch.ones(2, 3)) * gate).sum().backward()
        """,
        "* gate.clone())",
    ),
    "one constant in all places": (
        """
        import torch
        class Loads:
            def __init__(self):
                self.loads = [torch.full((3,), 0.5)] * 3
            def step(self):
                for i in range(3):
                    self.loads[i].mul_(0.9).add_(torch.rand(3), alpha=0.1)
        loads = Loads()
        for _ in range(4):
            loads.step()
        for load in loads.loads:
            print(load.tolist())
        """,
        "self.loads = [torch.full((3,), 0.5) for _ in range(3)]\n",
    ),
    "hook without a result": (
        """
        import torch
        layer = torch.nn.Linear(3, 3)
        a, b = layer(torch.ones(2, 3)), layer(torch.zeros(2, 3))
        def halve(g):
            g.mul_(0.5)
        b.register_hook(halve)
        (a + b).pow(2).sum().backward()
        """,
        "    return g.mul(0.5)",
    ),
}


@pytest.mark.parametrize(("source", "wanted"), CASES.values(), ids=CASES)
def test_the_edit_is_found_and_the_program_is_clean(source, wanted, mend):
    outcome = mend(source)
    assert outcome.clean, [(m.finding.code, m.dropped) for m in outcome.mends]
    [edited] = outcome.changed.values()
    assert wanted in edited.text


def test_a_twin_whose_value_nobody_reads_is_no_cure(mend):
    """`p = p - …` for a loop variable would run and train nothing."""
    outcome = mend(
        """
        import torch
        params = [torch.ones(3, requires_grad=True)]
        for _ in range(2):
            sum((p * p).sum() for p in params).backward()
            for p in params:
                p -= 0.1 * p.grad
        """
    )
    [edited] = outcome.changed.values()
    assert "with torch.no_grad():" in edited.text
    assert "p = p -" not in edited.text


def test_the_step_that_would_take_foreign_gradients_is_not_moved(mend):
    source = """
        import torch
        critic, actor = torch.nn.Linear(2, 1), torch.nn.Linear(2, 2)
        opt = torch.optim.SGD(critic.parameters(), lr=0.1)
        state = torch.randn(4, 2)
        actor_loss = -critic(actor(state)).tanh().mean()
        critic_loss = critic(state).pow(2).mean()
        critic_loss.backward()
        opt.step()
        actor_loss.backward()
        """
    outcome = mend(source)
    assert outcome.clean
    [edited] = outcome.changed.values()
    lines = [line.strip() for line in edited.text.splitlines()]
    assert lines.index("opt.step()") < lines.index("actor_loss.backward()")
    assert any("takes other gradients" in why for _, why in outcome.mends[0].dropped)
    # Both losses stand before the step: to compute one of them after it would be another program.
    assert outcome.mends[0].verdict.equal


def test_a_clean_program_needs_nothing(mend):
    outcome = mend("import torch\nw = torch.ones(3, requires_grad=True)\n(w + 1).add_(1).sum().backward()\n")
    assert outcome.mends == []
    assert outcome.runs == 1
    assert outcome.diff == ""


def test_findings_are_told_in_the_lines_of_the_file(mend):
    source = textwrap.dedent(
        """
        import torch
        w = torch.ones(3, requires_grad=True)
        w[0] = 2.0
        h = w.exp()
        h += 1
        h.sum().backward()
        """
    ).lstrip()
    outcome = mend(source)
    assert outcome.clean
    told = {finding.code: finding.primary.line for finding in outcome.findings()}
    assert told == {"TS103": 3, "TS101": 5}
