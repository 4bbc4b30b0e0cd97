"""For every rewrite a program on which it would be wrong: it must not be called verified."""

from __future__ import annotations

import textwrap

import pytest

from torchsan.fix.candidates import candidates
from torchsan.fix.engine import Engine
from torchsan.fix.rewrites import REWRITES
from torchsan.rules import all_rules

# By rewrite: a program whose fault has a candidate of this rewrite that runs and is wrong, and a piece of that edit.
WRONG = {
    "out_of_place": (
        # `kept` must see the change: a new value for h alone leaves it behind.
        """
        import torch
        w = torch.ones(3, requires_grad=True)
        h = w.exp()
        kept = {"h": h}
        h += 1
        (kept["h"] * 2).sum().backward()
        print(kept["h"].sum().item())
        """,
        "h = h + 1",
    ),
    "clone_before_write": (
        """
        import torch
        w = torch.ones(3, requires_grad=True)
        h = w.exp()
        kept = [h]
        h.mul_(2)
        (kept[0] * h).sum().backward()
        """,
        "h = h.clone()",
    ),
    "clone_saved": (
        # A copy of the wrong operand leaves the fault.
        """
        import torch
        w = torch.ones(3, requires_grad=True)
        a, b = w * 2, w * 3
        c = a * b
        b += 1
        c.sum().backward()
        """,
        "a.clone()",
    ),
    "inplace_false": (
        # The caller relies on the layer's write.
        """
        import torch
        from torch import nn
        act = nn.ReLU(inplace=True)
        w = torch.randn(4, requires_grad=True)
        h = w * 1.0
        s = h.sigmoid()
        act(s)
        t = s - 0.75
        act(t)
        (s * t).sum().backward()
        print(t.min().item())
        """,
        "inplace=False",
    ),
    "clone_argument": (
        """
        import torch
        import torch.nn.functional as F
        w = torch.randn(4, requires_grad=True)
        s = w.sigmoid()
        F.threshold(s, 0.5, 0.1, inplace=True)
        s.pow(2).sum().backward()
        """,
        "s.clone()",
    ),
    "under_no_grad": (
        # The write is part of the computation.
        """
        import torch
        layer = torch.nn.Linear(3, 3)
        for row in layer(torch.ones(2, 3)):
            pass
        a, b = layer(torch.ones(2, 3)).unbind(0)
        a.mul_(layer.weight.sum())
        (a.sum() + b.sum()).backward()
        """,
        "no_grad",
    ),
    "step_later": (
        # The step must not come after the gradients of the second loss.
        """
        import torch
        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        x = torch.ones(2, 3)
        hidden = net(x)
        first, second = hidden.pow(2).sum(), (net.weight * hidden.sum()).sum()
        first.backward(retain_graph=True)
        opt.step()
        second.backward()
        print(net.weight.detach().sum().item())
        """,
        "opt.step()",
    ),
    "detach_carried": (
        """
        import torch
        cell = torch.nn.Linear(3, 3)
        h = torch.zeros(3)
        for _ in range(2):
            h = torch.tanh(cell(h + 1))
            h.sum().backward()
            h = h * 1.0
        print(cell.weight.grad.sum().item())
        """,
        "tuple(part",
    ),
    "kept_copy": (
        # A shallow copy is none.
        """
        import torch
        model = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        best = model.state_dict()
        for _ in range(3):
            opt.zero_grad()
            model(torch.ones(2, 3)).pow(2).mean().backward()
            opt.step()
        model.load_state_dict(best)
        print(model.weight.sum().item())
        """,
        "state_dict().copy()",
    ),
    "bound_copy": (
        # What the hook writes must not be lost.
        """
        import torch
        layer = torch.nn.Linear(3, 3)
        a, b = layer(torch.ones(2, 3)), layer(torch.zeros(2, 3))
        def halve(g):
            g.mul_(0.5)
        b.register_hook(halve)
        (a + b).pow(2).sum().backward()
        print(layer.bias.grad.sum().item())
        """,
        "g = g.clone()",
    ),
    "local_value": (
        # The parameter itself is meant to change, at every call.
        """
        import torch
        class Decay(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.ones(3))
            def forward(self, x):
                self.scale *= 0.5
                return (self.scale * x).sum()
        net = Decay()
        for _ in range(2):
            net(torch.ones(3)).backward()
        print(net.scale.detach().sum().item())
        """,
        "scale = self.scale * 0.5",
    ),
    "keep_graph": (
        # The target is detached on purpose: following its gradient would be another loss.
        """
        import torch
        net = torch.nn.Linear(3, 3)
        x = torch.ones(2, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        target = net(x).detach()
        loss = (target - 1.0).pow(2).mean()
        print(loss.item())
        """,
        "target = net(x)\n",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_rewrite_is_not_verified_where_it_is_wrong(name, tmp_path, lab):
    source, piece = WRONG[name]
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(source).lstrip("\n"))
    engine = Engine(lab(path, 10))
    before = engine._run({}, "watch")
    for target in before.alarms:
        engine._healed(target)
        for candidate in candidates(target, engine.sources):
            after = candidate.result()
            if candidate.rewrite == name and after is not None and piece in after.text:
                verdict, _, _ = engine._try(candidate, target, before)
                assert verdict.kind != "proved", f"{candidate.title}: {verdict.words}"


def test_every_rewrite_that_runs_programs_is_named_by_a_rule():
    named = {name for rule in all_rules().values() for _, name in rule.fixes}
    assert set(WRONG) <= named <= set(REWRITES)


MOVED = """
import torch


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 3))

    def forward(self, x):
        out = x @ self.weight
        self.weight.data /= self.weight.data.norm()
        return out


net = Scaled()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    net(torch.ones(2, 3, requires_grad=True)).pow(2).sum().backward()
    opt.step()
print(net.weight.detach().sum().item())
"""


def test_no_definition_is_moved(mend):
    outcome = mend(MOVED)
    for mended in outcome.mends:
        for candidate in (mended.candidate, mended.idea):
            after = candidate.result() if candidate is not None else None
            if after is not None:
                order = [line for line in after.text.splitlines() if line.startswith(("import", "class", "net ="))]
                assert order == ["import torch", "class Scaled(torch.nn.Module):", "net = Scaled()"]


def test_statements_do_not_cross_what_touches_the_same_state(mend):
    source = """
    import torch
    net = torch.nn.Linear(3, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.ones(2, 3, requires_grad=True)
    loss = net(x).pow(2).sum()
    other = net(x).sum()
    other.backward(retain_graph=True)
    opt.step()
    opt.zero_grad()
    loss.backward()
    """
    outcome = mend(source)
    texts = [mended.candidate.result().text for mended in outcome.mends if mended.candidate is not None]
    for text in texts:
        assert text.index("opt.step()") < text.index("opt.zero_grad()")
