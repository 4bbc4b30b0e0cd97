"""For every rewrite a program on which it would be wrong: it must not be called verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchsan.fix.candidates import Candidate
from torchsan.fix.engine import Engine
from torchsan.fix.rewrites import REWRITES
from torchsan.fix.source import Edit
from torchsan.rules import all_rules

PROGRAMS = Path(__file__).parents[1] / "programs" / "fixes"
LOOP = """
import torch
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.ones(2, 3)
"""
# By rewrite: a program, and the edit that this rewrite could make there: it runs, the error is gone, and it is wrong.
WRONG = {
    "out_of_place": (
        "w = torch.ones(3, requires_grad=True)\nh = w.exp()\nkept = {'h': h}\nh += 1\n"
        "(kept['h'] * 2).sum().backward()\nprint(kept['h'].sum().item())",
        ("h += 1", "h = h + 1"),
    ),
    "out_of_place (the result is thrown away)": (
        "w = torch.ones(3, requires_grad=True)\nh = w.exp()\nh.add_(1)\n(h * 2).sum().backward()",
        ("h.add_(1)", "h.add(1)"),
    ),
    "clone_before_write": (
        "w = torch.ones(3, requires_grad=True)\nh = w.exp()\nkept = [h]\nh.mul_(2)\n(kept[0] * 2).sum().backward()",
        ("h.mul_(2)", "h = h.clone(); h.mul_(2)"),
    ),
    "clone_saved (also cut)": (
        "w = torch.ones(3, requires_grad=True)\na, b = w * 2, w * 3\nc = a * b\nb += 1\n(c + b).sum().backward()",
        ("a * b", "a * b.detach().clone()"),
    ),
    "clone_saved_result": (
        "w = torch.ones(3, requires_grad=True)\nh = w.exp()\nsame = h\nh += 1\n(same * 2).sum().backward()",
        ("same = h\nh += 1", "same = h.clone()\nh = h + 1"),
    ),
    "inplace_false": (
        "act = torch.nn.ReLU(inplace=True)\nw = torch.ones(4, requires_grad=True)\nt = (w - 1.5).tanh() * w\n"
        "act(t)\nu = (w - 1.5).sigmoid()\nv = u * 2\nact(u)\nu.mul_(2)\n(t + u.exp() + v).sum().backward()",
        ("inplace=True", "inplace=False"),
    ),
    "clone_argument": (
        "import torch.nn.functional as F\nw = torch.randn(4, requires_grad=True)\ns = w.sigmoid()\n"
        "F.threshold(s, 0.5, 0.1, inplace=True)\ns.pow(2).sum().backward()",
        ("F.threshold(s,", "F.threshold(s.clone(),"),
    ),
    "under_no_grad": (
        "layer = torch.nn.Linear(3, 3)\na, b = layer(torch.ones(2, 3)).unbind(0)\na.mul_(layer.weight.sum())\n"
        "(a.sum() + b.sum()).backward()",
        ("a.mul_(layer.weight.sum())", "a.data.mul_(layer.weight.sum().item())"),
    ),
    "leaf_write": (
        "w = torch.ones(3, requires_grad=True)\nfor _ in range(2):\n    (w * w).sum().backward()\n    w -= 0.1 * w.grad\n"
        "print(w.detach().sum().item())",
        ("w -= 0.1 * w.grad", "w.detach().clone().sub_(0.1 * w.grad)"),
    ),
    "local_value": (
        "class Decay(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.scale = torch.nn.Parameter(torch.ones(3))\n    def forward(self, x):\n        self.scale *= 0.5\n"
        "        return (self.scale * x).sum()\nnet = Decay()\nfor _ in range(2):\n    net(torch.ones(3)).backward()\n"
        "print(net.scale.detach().sum().item())",
        ("self.scale *= 0.5\n        return (self.scale * x)", "scale = self.scale * 0.5\n        return (scale * x)"),
    ),
    "copy_into": (
        "net = torch.nn.Linear(3, 1)\nnet.weight = torch.zeros(1, 3)\nnet(torch.ones(3)).backward()\n"
        "print(net.weight.sum().item())",
        ("net.weight = torch.zeros(1, 3)", "torch.zeros(1, 3)"),
    ),
    "grad_mode_view": (
        "layer = torch.nn.Linear(3, 3)\nout = layer(torch.ones(2, 3))\nwith torch.no_grad():\n    first = out[0]\n"
        "first.mul_(layer.weight.sum())\nout.sum().backward()",
        ("    first = out[0]", "    first = out[0].clone()"),
    ),
    "no_grad_for_inference": (
        "with torch.inference_mode():\n    total = torch.ones(3)\ntotal += 1\nprint(total.sum().item())",
        ("total += 1", "total = total.clone()"),
    ),
    "step_later": (
        LOOP + "first, second = net(x).pow(2).sum(), (net.weight * net(x).sum()).sum()\nfirst.backward()\nopt.step()\n"
        "second.backward()\nprint(net.weight.detach().sum().item())",
        ("opt.step()\nsecond.backward()", "second.backward()\nopt.step()"),
    ),
    "step_later (past zero_grad)": (
        LOOP + "first, second = net(x).pow(2).sum(), (net.weight * net(x).sum()).sum()\nfirst.backward()\nopt.step()\n"
        "opt.zero_grad()\nsecond.backward()\nprint(net.weight.detach().sum().item())",
        ("opt.step()\nopt.zero_grad()", "opt.zero_grad()\nopt.step()"),
    ),
    "forward_again (of something else)": (
        LOOP + "first, second = net(x).pow(2).sum(), (net.weight * net(x).sum()).sum()\nfirst.backward()\nopt.step()\n"
        "second.backward()\nopt.step()\nprint(net.weight.detach().sum().item())",
        ("second.backward()\n", "second = net.bias.sum() * 0\nsecond.backward()\n"),
    ),
    "copied_weights (cut off)": (
        LOOP + "first, second = net(x).pow(2).sum(), (net.weight * net(x).sum()).sum()\nfirst.backward()\nopt.step()\n"
        "second.backward()\nopt.step()\nprint(net.weight.detach().sum().item())",
        ("(net.weight * net(x)", "(net.weight.detach().clone() * net(x)"),
    ),
    "detach_carried": (
        "cell = torch.nn.Linear(3, 3)\nh = torch.zeros(3)\nfor _ in range(2):\n    h = torch.tanh(cell(h + 1))\n"
        "    h.sum().backward()\nprint(cell.weight.grad.sum().item())",
        ("cell(h + 1)", "cell((h + 1) * 0).detach().requires_grad_()"),
    ),
    "kept_copy (shallow)": (
        LOOP + "best = net.state_dict()\nfor _ in range(3):\n    opt.zero_grad()\n    net(x).pow(2).mean().backward()\n"
        "    opt.step()\nnet.load_state_dict(best)\nprint(net.weight.sum().item())",
        ("best = net.state_dict()", "best = dict(net.state_dict())"),
    ),
    "kept_copy (of the start only)": (
        LOOP + "best = net.state_dict()\nfor _ in range(3):\n    opt.zero_grad()\n    net(x).pow(2).mean().backward()\n"
        "    opt.step()\nnet.load_state_dict(best)\nprint(net.weight.sum().item())",
        ("best = net.state_dict()", "best = {k: torch.zeros_like(v) for k, v in net.state_dict().items()}"),
    ),
    "bound_copy": (
        "layer = torch.nn.Linear(3, 3)\na, b = layer(torch.ones(2, 3)), layer(torch.zeros(2, 3))\ndef halve(g):\n"
        "    g.mul_(0.5)\nb.register_hook(halve)\n(a + b).pow(2).sum().backward()\nprint(layer.bias.grad.sum().item())",
        ("    g.mul_(0.5)", "    g = g.clone()\n    g.mul_(0.5)"),
    ),
    "returned_twin (of another value)": (
        "layer = torch.nn.Linear(3, 3)\na, b = layer(torch.ones(2, 3)), layer(torch.zeros(2, 3))\ndef halve(g):\n"
        "    g.mul_(0.5)\nb.register_hook(halve)\n(a + b).pow(2).sum().backward()\nprint(layer.bias.grad.sum().item())",
        ("    g.mul_(0.5)", "    return g.mul(0.25)"),
    ),
    "array_copy (cut off)": (
        "w = torch.ones(3, requires_grad=True)\nh = w * 2\nout = h * h\nh.detach().numpy()[0] = 5.0\nout.sum().backward()",
        ("out = h * h", "out = h * h.detach().clone()"),
    ),
    "keep_graph": (
        LOOP + "a = net(x).mean()\nb = net(x).detach().mean()\n(b * 2).backward()",
        ("net(x).detach().mean()", "net(x * 0).mean()"),
    ),
    "own_memory (rows of another)": (
        "mats = torch.eye(2).expand(3, 2, 2)\nmats[0] = 5.0\nprint(mats.sum().item())",
        ("torch.eye(2).expand(3, 2, 2)", "torch.zeros(3, 2, 2)"),
    ),
    "own_memory (another name reads the memory)": (
        "layer = torch.nn.Linear(3, 4)\np = layer(torch.ones(3)).view(1, 4)\nwide = p.expand(3, 4)\n"
        "wide[wide < 0.3] = 0.3\n(wide.exp().sum() + p.exp().sum()).backward()",
        (".expand(3, 4)", ".expand(3, 4).clone()"),
    ),
    "out_of_place (the gradient goes where the value does not)": (
        "layer = torch.nn.Linear(3, 4)\np = layer(torch.ones(3)).view(1, 4)\nwide = p.expand(3, 4)\n"
        "wide[wide < 0.3] = 0.3\nwide.exp().sum().backward()",
        ("wide[wide < 0.3] = 0.3", "wide = wide + (wide.clamp(min=0.3) - wide).detach()"),
    ),
    "clone_saved (what is cut is not what was refused)": (
        "layer = torch.nn.Linear(3, 3)\nwith torch.inference_mode():\n    gate = torch.rand(3)\n"
        "h = layer(torch.ones(3))\n(h * gate + h).sum().backward()",
        ("h * gate + h", "h.detach() * gate + h"),
    ),
    "single_views": (
        "w = torch.ones(2, 3, requires_grad=True)\nh = w * 2\nfor row in h:\n    row.mul_(3)\nh.sum().backward()",
        ("for row in h:", "for row in h.clone():\n    row = row.clone()"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_edit_is_not_verified_where_it_is_wrong(name, tmp_path, lab):
    source, (old, new) = WRONG[name]
    path = tmp_path / "program.py"
    path.write_text(source if "import torch\n" in source else f"import torch\n{source}\n")
    engine = Engine(lab(path, 10))
    before = engine.trial({}, "watch")
    target = before.alarms[0]
    known = engine.sources.get(str(path))
    start = known.text.index(old)
    candidate = Candidate(name, known, (Edit(start, start + len(old), new),))
    assert candidate.result() is not None
    verdict, _, _ = engine._try(candidate, target, before)
    assert verdict.kind != "proved", verdict.words


def test_every_rewrite_that_runs_programs_is_named_by_a_rule():
    named = {name for rule in all_rules().values() if rule.family in "123" for _, name in rule.fixes}
    assert {name.partition(" (")[0] for name in WRONG} <= named <= set(REWRITES)


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


PAINTED = """
import torch


@torch.no_grad()
def window(canvas):
    return canvas[1:3], 1


class Painter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = torch.nn.Parameter(torch.ones(1))
        self.colour = torch.nn.Parameter(torch.zeros(2))

    def forward(self):
        canvas = self.base * torch.ones(4)
        part, where = window(canvas)
        part += self.colour
        return canvas


painter = Painter()
opt = torch.optim.SGD(painter.parameters(), lr=0.1)
for _ in range(3):
    loss = (painter() - torch.tensor([1.0, 2.0, 3.0, 4.0])).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
print(painter.colour.detach())
"""


def test_what_autograd_no_longer_sees_is_no_fix(mend):
    """Parameters that begin at zero and are cut off stay at zero: everything agrees, since nothing is learnt."""
    assert not any(mended.proved for mended in mend(PAINTED).mends)


SMOOTH = """
import torch

torch.manual_seed(0)
step = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(step.parameters(), lr=0.1)
for _ in range(3):
    z, jump = torch.tanh(step(torch.ones(2, 3))), 0.0
    for _ in range(2):
        before = z
        z += 0.5 * torch.sin(step(z))
        jump = jump + (z - before).pow(2).mean()
    loss = z.pow(2).mean() + jump
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item(), jump.item())
"""


def test_a_write_that_two_faults_share_is_mended_for_both(mend):
    """The healed run alone would call `before = z` after the write right: the distance to itself, which is zero."""
    outcome = mend(SMOOTH)
    assert outcome.mends
    assert all(mended.proved for mended in outcome.mends)
    text = outcome.mends[-1].candidate.result().text
    assert "z = z + 0.5 * torch.sin(step(z))\n        jump" in text


MEANT_OTHERWISE = {
    "shadow_average.py": "an average that is kept in the live weights themselves: no_grad only lets it spoil them",
    "preact_blocks.py": "the shortcut counts on what the layer did in place",
    "latent_imagination.py": "the loss is computed after the step, with the weights that it left",
}


@pytest.mark.parametrize("name", MEANT_OTHERWISE)
@pytest.mark.filterwarnings("ignore")
def test_an_edit_that_changes_what_is_meant_is_not_verified(mend, name):
    outcome = mend((PROGRAMS / name).read_text())
    assert outcome.mends
    assert not any(mended.proved for mended in outcome.mends)


CARRIED = """
import torch

torch.manual_seed(0)
cell, head = torch.nn.GRU(3, 4), torch.nn.Linear(4, 1)
opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.3)
state = None
for _ in range(3):
    out, state = cell(torch.randn(5, 2, 3), state)
    loss = head(out).pow(2).mean()
    opt.zero_grad()
    loss.backward(retain_graph=True)
    opt.step()
    print(loss.item())
"""
# The same by hand, without an optimizer.
CARRIED_BY_HAND = """
import torch

torch.manual_seed(0)
w = torch.randn(4, 4, requires_grad=True)
state = torch.ones(2, 4)
for _ in range(3):
    state = torch.tanh(state @ w)
    loss = state.pow(2).mean()
    loss.backward(retain_graph=True)
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad = None
    print(loss.item())
"""


@pytest.mark.parametrize("source", [CARRIED, CARRIED_BY_HAND], ids=["optimizer", "by hand"])
def test_a_gradient_through_two_states_of_the_weights_proves_nothing(mend, source):
    """Copies of the weights equal the healed run, which goes back to the first step; a cut may be what is meant."""
    outcome = mend(source)
    assert outcome.mends
    assert not any(mended.proved for mended in outcome.mends), outcome.mends[0].verdict


BORROWED = """
import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.randn(6, 3)

def attacked(x):
    found = MADE
    for _ in range(2):
        (way,) = torch.autograd.grad(net(found).pow(2).sum(), found)
        WRITE
    return found.detach()

for _ in range(3):
    worst = attacked(data[:4])
    loss = net(data).pow(2).mean() + net(worst).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
"""


@pytest.mark.parametrize("made", ["x.detach().requires_grad_()", "torch.nn.Parameter(x)"])
@pytest.mark.parametrize(
    "write",
    ["found += 0.1 * way.sign()", "found[:2] += 0.1 * way[:2].sign()", "found[:2].add_(0.1 * way[:2].sign())"],
)
def test_a_refused_write_to_borrowed_memory_is_not_made(mend, made, write):
    """Under no_grad the write would be what the line says, and would change the data that the leaf was taken from."""
    outcome = mend(BORROWED.replace("WRITE", write).replace("MADE", made))
    assert outcome.mends
    for mended in outcome.mends:
        assert not mended.proved or "no_grad" not in mended.candidate.title, mended.verdict
