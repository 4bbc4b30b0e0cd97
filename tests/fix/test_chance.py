"""Edits that are wrong, and that look right in the run: by chance, or because nobody looks where they do harm."""

from __future__ import annotations

import pytest

from torchsan.fix import engine as engines
from torchsan.fix.candidates import Candidate
from torchsan.fix.engine import Engine
from torchsan.fix.source import Edit

NET = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
head = nn.Linear(4, 1)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
"""
# The fault: tanh saves its result, which is written. `EDIT` stands where what else the program does is put.
STEP = """
def step(x):
    h = net(x)
    h *= 0.5
    return head(h)
"""
# By what hides it: the program, the wrong edit, and words of the reason for which it is not called verified.
FOOLERS: dict[str, tuple[str, tuple[str, str]]] = {
    "the head begins with zeros": (
        NET + "nn.init.zeros_(head.weight)\n" + STEP + "step(torch.randn(5, 3)).sum().backward()\n",
        ("h *= 0.5\n    return head(h)", "h = h * 0.5\n    return head(h * h)"),
    ),
    "all rows are equal": (
        NET + STEP + "step(torch.ones(5, 3))[0].sum().backward()\n",
        ("h *= 0.5\n", "h = h.flip(0) * 0.5\n"),
    ),
    "all columns of the input are equal": (
        NET
        + "nn.init.constant_(net[0].weight, 0.3)\nnn.init.constant_(net[0].bias, 0.1)\n"
        + STEP
        + "nn.init.constant_(head.weight, 0.2)\nstep(torch.randn(5, 3)).sum().backward()\n",
        ("h *= 0.5\n", "h = h.flip(1) * 0.5\n"),
    ),
    "the factor is one": (
        NET + "gain = torch.ones(4)\ndef step(x):\n    h = net(x)\n    h *= gain\n    return head(h)\n"
        "step(torch.randn(5, 3)).sum().backward()\n",
        ("h *= gain\n", "h = h + 0 * gain\n"),
    ),
    "no loss is a number": (
        NET + STEP + "step(torch.full((5, 3), float('nan'))).sum().backward()\n",
        ("h *= 0.5\n", "h = h * 7.0\n"),
    ),
    "no gradient is anything but zero": (
        NET + STEP + "(step(torch.randn(5, 3)).sum() * 0).backward()\n",
        ("h *= 0.5\n", "h = h * 0.6\n"),
    ),
    "printed with few digits": (
        NET + STEP + "def main():\n    print(f'{step(torch.randn(5, 3)).mean():.0f}')\n"
        "    step(torch.randn(5, 3)).sum().backward()\nmain()\n",
        ("    return head(h)\n", "    return head(h) if h.requires_grad and len(h) < 1 else head(h) + 1e-2\n"),
    ),
    "seen at the exit only": (
        NET + "import atexit\nseen = []\nclass Log:\n    pass\n"
        "def step(x):\n    h = net(x)\n    h *= 0.5\n    seen.append(float(h.sum()))\n    return head(h)\n"
        "def report():\n    print(sum(seen))\natexit.register(report)\n"
        "step(torch.randn(5, 3)).sum().backward()\n_private, seen_ = seen, None\ndel seen_\n",
        ("h *= 0.5\n    seen.append(float(h.sum()))", "seen.append(float(h.sum()))\n    h = h * 0.5"),
    ),
    "in a file": (
        NET
        + "import os, tempfile\ndef step(x):\n    h = net(x)\n    h *= 0.5\n    save(h.detach())\n    return head(h)\n"
        "def save(t):\n    with open(os.path.join(tempfile.gettempdir(), 'torchsan-fooler.txt'), 'w') as f:\n"
        "        f.write(str(float(t.sum())))\nstep(torch.randn(5, 3)).sum().backward()\n",
        ("    h *= 0.5\n    save(h.detach())\n", "    save(h.detach())\n    h = h * 0.5\n"),
    ),
    "in a pickle": (
        NET + "import os, pickle, tempfile\ndef step(x):\n    h = net(x)\n    h *= 0.5\n    save(h.detach())\n"
        "    return head(h)\ndef save(t):\n"
        "    with open(os.path.join(tempfile.gettempdir(), 'torchsan-fooler.pkl'), 'wb') as f:\n"
        "        pickle.dump(t.tolist(), f)\nstep(torch.randn(5, 3)).sum().backward()\n",
        ("    h *= 0.5\n    save(h.detach())\n", "    save(h.detach())\n    h = h * 0.5\n"),
    ),
    "in another thread": (
        NET + "import threading\ndef work(out):\n    h = net(torch.ones(2, 3))\n    h *= 0.5\n"
        "    head(h).sum().backward()\n    print(float(h.sum()))\n"
        "thread = threading.Thread(target=work, args=([],))\nthread.start()\nthread.join()\ndel thread\n",
        ("    h *= 0.5\n    head(h).sum().backward()\n", "    g = h * 0.5\n    head(g).sum().backward()\n"),
    ),
    "in the log": (
        NET
        + "import logging\ndef step(x):\n    h = net(x)\n    h *= 0.5\n    logging.warning('mean %s', float(h.mean()))\n"
        "    return head(h)\nstep(torch.randn(5, 3)).sum().backward()\n",
        (
            "h *= 0.5\n    logging.warning('mean %s', float(h.mean()))",
            "logging.warning('mean %s', float(h.mean()))\n    h = h * 0.5",
        ),
    ),
    "on standard error": (
        NET + "import sys\ndef step(x):\n    h = net(x)\n    h *= 0.5\n    print(float(h.mean()), file=sys.stderr)\n"
        "    return head(h)\nstep(torch.randn(5, 3)).sum().backward()\n",
        (
            "h *= 0.5\n    print(float(h.mean()), file=sys.stderr)",
            "print(float(h.mean()), file=sys.stderr)\n    h = h * 0.5",
        ),
    ),
    "in the state of the random numbers": (
        NET + STEP + "step(torch.randn(5, 3)).sum().backward()\n",
        ("h *= 0.5\n", "h = h * 0.5 + 0 * torch.randn(1)\n"),
    ),
    "in a buffer of a module that is never called": (
        NET + "class Stats(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('mean', torch.zeros(4))\ndef main():\n    stats = Stats()\n"
        "    h = net(torch.randn(5, 3))\n    h *= 0.5\n    stats.mean += h.detach().mean(0)\n    head(h).sum().backward()\n"
        "main()\n",
        (
            "    h *= 0.5\n    stats.mean += h.detach().mean(0)\n",
            "    stats.mean += h.detach().mean(0)\n    h = h * 0.5\n",
        ),
    ),
    "in a variable of a function": (
        NET + "def main():\n    kept = []\n    h = net(torch.randn(5, 3))\n    kept.append(h.detach())\n    h *= 0.5\n"
        "    head(h).sum().backward()\nmain()\n",
        ("    h *= 0.5\n", "    h = h * 0.5\n"),
    ),
    "in a class": (
        NET + "class Seen:\n    last = None\ndef step(x):\n    h = net(x)\n    Seen.last = h.detach()\n    h *= 0.5\n"
        "    return head(h)\nstep(torch.randn(5, 3)).sum().backward()\n",
        ("    h *= 0.5\n", "    h = h * 0.5\n"),
    ),
    "in a closure": (
        NET + "def make():\n    seen = []\n    def step(x):\n        h = net(x)\n        seen.append(h.detach())\n"
        "        h *= 0.5\n        return head(h)\n    return step\nstep = make()\nstep(torch.randn(5, 3)).sum().backward()\n",
        ("        h *= 0.5\n", "        h = h * 0.5\n"),
    ),
    "in the gradient of an inner value": (
        NET
        + "def main():\n    x = torch.randn(5, 3)\n    h = net(x)\n    h *= 0.5\n    y = head(h)\n    y.retain_grad()\n"
        "    (y.sum() + 0 * (y * h.detach().sum()).sum()).backward()\nmain()\n",
        (
            "    h *= 0.5\n    y = head(h)\n    y.retain_grad()\n",
            "    h = h * 0.5\n    y = head(h)\n    y.retain_grad()\n    y.register_hook(lambda g: None)\n    y = y * 2 / 2\n"
            "    h = h + 1\n",
        ),
    ),
    "in the state of the optimizer": (
        NET.replace("lr=0.1", "lr=0.0, momentum=0.9")
        + STEP
        + "for _ in range(2):\n    opt.zero_grad()\n    step(torch.randn(5, 3)).sum().backward()\n    opt.step()\n",
        ("h *= 0.5\n    return head(h)", "h = h * 0.5\n    opt.state.clear()\n    return head(h)"),
    ),
    "a part of the line that never ran": (
        NET + "def step(x, big=False):\n    h = net(x)\n    h *= 2.0 if big else 0.5\n    return head(h)\n"
        "step(torch.randn(5, 3)).sum().backward()\n",
        ("h *= 2.0 if big else 0.5", "h = h + 2.0 if big else h * 0.5"),
    ),
    "a branch that never ran": (
        NET
        + "def step(x, big=False):\n    h = net(x)\n    if big:\n        h *= 3.0\n    h *= 0.5\n    return head(h)\n"
        "step(torch.randn(5, 3)).sum().backward()\n",
        ("    h *= 0.5\n", "    h = h * 0.5\n"),
    ),
    "another function in the same place that never ran": (
        NET + "def damp(h):\n    h *= 0.5\n    return h\ndef swap(h):\n    h[:2] = h[:2].flip(0)\n    return h\n"
        "def step(x, way='damp'):\n    return head({'damp': damp, 'swap': swap}[way](net(x)))\n"
        "step(torch.randn(5, 3)).sum().backward()\n",
        ("h *= 0.5\n    return h", "h = h * 0.5\n    return h"),
    ),
    "another caller that never ran": (
        NET + "def damp(h):\n    h *= 0.5\n    return h\ndef evaluate():\n    out = net(torch.ones(1, 3)).detach()\n"
        "    damp(out)\n    return out\nhead(damp(net(torch.randn(5, 3)))).sum().backward()\n",
        ("h *= 0.5\n    return h", "h = h * 0.5\n    return h"),
    ),
    "another name that is read where no run came": (
        NET + "def step(x, debug=False):\n    h = net(x)\n    shown = h.detach()\n    h *= 0.5\n    if debug:\n"
        "        print(shown.sum())\n    del shown\n    return head(h)\nstep(torch.randn(5, 3)).sum().backward()\n",
        ("    h *= 0.5\n", "    h = h * 0.5\n"),
    ),
    "another layer in the same place that never ran": (
        NET + "acts = nn.ModuleDict({'a': nn.ReLU(inplace=True), 'b': nn.Sigmoid()})\n"
        "class Pick(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.first, self.second = nn.ELU(inplace=True), nn.Hardtanh(inplace=True)\n"
        "    def forward(self, x, which=0):\n        h = net(x)\n        return head([self.first, self.second][which](h))\n"
        "pick = Pick()\npick(torch.randn(5, 3)).sum().backward()\n",
        ("nn.ELU(inplace=True)", "nn.ELU()"),
    ),
    "a draw that decides": (
        NET
        + "import random\nrandom.seed(2)\ndef damp(h):\n    h *= 0.5\n    return h\ndef cap(h):\n    return h.clamp_(max=0.3)\n"
        "for _ in range(2):\n    way = random.choice((damp, cap))\n    head(damp(net(torch.randn(5, 3)))).sum().backward()\n",
        ("h *= 0.5\n    return h", "h = h * 0.5\n    return h"),
    ),
    "the next turn of a loop": (
        NET + "def attack(x, steps=1):\n    for _ in range(steps):\n        head(net(x)).sum().backward()\n"
        "        x += 0.1 * x.grad.sign()\n    return x.detach()\n"
        "shifted = attack(torch.randn(5, 3).requires_grad_())\n",
        ("x += 0.1 * x.grad.sign()", "x = x + 0.1 * x.grad.sign()"),
    ),
    "another member of the list": (
        "import torch\ndef sample():\n    x = torch.randn(3)\n    frames = [x]\n    for t in range(3):\n"
        "        x.mul_(0.5).add_(t)\n        frames.append(x)\n    return frames\n"
        "frames = sample()\nprint(sum((b - a).norm().item() for a, b in zip(frames, frames[1:])))\n",
        ("frames.append(x)", "frames.append(x.clone())"),
    ),
    "one constant for all, moved alike": (
        "import torch\nclass Loads:\n    def __init__(self):\n        self.loads = [torch.full((3,), 0.5)] * 3\n"
        "    def step(self):\n        for i in range(3):\n            self.loads[i].mul_(0.9).add_(torch.rand(3), alpha=0.1)\n"
        "loads = Loads()\nfor _ in range(4):\n    loads.step()\nfor load in loads.loads:\n    print(load.tolist())\n",
        ("[torch.full((3,), 0.5)] * 3", "[torch.full((3,), 0.5) for _ in range(2)] + [torch.full((3,), 0.6)]"),
    ),
    "another name in the caller": (
        "import torch\nclass Env:\n    def __init__(self):\n        self.state = torch.zeros(3)\n"
        "    def step(self, a):\n        self.state.mul_(0.9).add_(a)\n        return self.state\n"
        "def collect(env, steps):\n    kept, obs = [], env.step(torch.randn(3))\n    for _ in range(steps):\n"
        "        after = env.step(torch.randn(3))\n        kept.append((obs, after))\n        obs = after\n    return kept\n"
        "print(sum(float((b - a).abs().sum()) for a, b in collect(Env(), 4)))\n",
        ("kept.append((obs, after))", "kept.append((obs.clone(), after.clone()))"),
    ),
    "a statement put in before the write, and a caller that did not run": (
        "import sys, torch\ndef damp(v, factor):\n    v.mul_(factor)\n    return v\n"
        "def replay(v):\n    damp(v, 0.5)\n    return v\nk = torch.rand(4, requires_grad=True)\n"
        "if '--replay' in sys.argv:\n    print(replay(k.detach()))\ndamp(torch.tanh(k * 2), k).sum().backward()\n",
        ("    v.mul_(factor)\n", "    v = v.clone()\n    v.mul_(factor)\n"),
    ),
    "the other kind of exit": (
        NET
        + "import sys\ndef step(x):\n    h = net(x)\n    h *= 0.5\n    return head(h), float(h.detach().abs().sum())\n"
        "loss, size = step(torch.randn(5, 3))\nloss.sum().backward()\ndel loss\nok, size = size < 5.0, 0\n"
        "sys.exit(0 if ok else 3) if not ok else None\n",
        (
            "h *= 0.5\n    return head(h), float(h.detach().abs().sum())",
            "g = h * 0.5\n    return head(g), float(h.detach().abs().sum())",
        ),
    ),
}


@pytest.mark.parametrize("name", FOOLERS)
def test_a_wrong_edit_is_not_called_verified(name, tmp_path, lab, monkeypatch):
    source, (old, new) = FOOLERS[name]
    path = tmp_path / "program.py"
    path.write_text(source)
    assert old in source

    def tempting(finding, sources):
        known = sources.get(str(path))
        start = known.text.find(old)
        if start >= 0:
            rewrite = "inplace_false" if "inplace=" in old else "out_of_place"
            yield Candidate("tempting", known, (Edit(start, start + len(old), new),), rewrite, finding.primary)

    monkeypatch.setattr(engines, "candidates", tempting)
    outcome = Engine(lab(path, 10)).run()
    assert outcome.mends, "the program has no fault"
    assert not any(mend.proved for mend in outcome.mends), outcome.mends[0].verdict
