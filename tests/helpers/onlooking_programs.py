"""Programs in which somebody else sees what a line writes: elsewhere, later, or only in a mode that is not run.

In each tanh saves its result, which is then written. With `MODE` the program goes on in another way. The edit that
comes to mind first runs, and is wrong there; what is called verified has to print in both ways what the healed program
prints.
"""

from __future__ import annotations

HEAD = """
import os
import torch
from torch import nn
from torch.nn import functional as F
MODE = os.environ.get("TORCHSAN_TEST_MODE", "")
torch.manual_seed(0)
torch.manual_seed(torch.initial_seed())
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
head = nn.Linear(4, 1)
x = torch.randn(5, 3)
def show(t):
    print([round(v, 5) for v in t.detach().reshape(-1)[:6].tolist()])
"""
END = """
loss = step(x).pow(2).mean()
loss.backward()
print(round(loss.item(), 6), round(net[0].weight.grad.sum().item(), 6))
"""
HALVED = "    h *= 0.5\n    return head(h)\n"
CLIP = "nn.Hardtanh(-0.3, 0.3, inplace=True)"
# A function that is called for its result in the run, and for what it writes in the other way.
FOR_ITS_EFFECT = "if MODE:\n    t = torch.linspace(-2, 2, 5)\n    CALL\n    show(t)\n"
BY_EFFECT = {
    "by its name": ("", "scale(t)"),
    "from a table": ("table = {'half': scale}\n", "table['half'](t)"),
    "from a list": ("stages = [scale, scale]\n", "for stage in stages:\n        stage(t)"),
    "by getattr": ("class Ops:\n    half = staticmethod(scale)\n", "getattr(Ops, 'half')(t)"),
    "by map": ("", "list(map(scale, [t]))"),
    "as a part of it": ("", "scale(t[1:3])"),
    "as a view of it": ("", "scale(t.view(-1))"),
    "through a partial": ("import functools\nhalf = functools.partial(scale)\n", "half(t)"),
    "under another name": ("shrink = scale\n", "shrink(t)"),
    "as an argument": ("def each(ts, do):\n    for one in ts:\n        do(one)\n", "each([t], scale)"),
    "in a lambda": ("do = lambda t: scale(t)\n", "do(t)"),
    "in a comprehension": ("", "[scale(one) for one in (t, t)]"),
}
LAYERS = {
    "on its own": ("act = CLIP\n", "act(net(x))", "act(t)"),
    "of a module": (
        "class Net(nn.Module):\n    def __init__(self, act):\n        super().__init__()\n        self.act = act\n"
        "class Other(Net):\n    def forward(self, t):\n        self.act(t)\n        return t\n"
        "act = CLIP\nmain, other = Net(act), Other(act)\n",
        "main.act(net(x))",
        "other(t)",
    ),
    "in a list": ("acts = nn.ModuleList([CLIP])\n", "acts[0](net(x))", "for a in acts:\n        a(t)"),
    "in a dictionary": ("acts = {'clip': CLIP}\n", "acts['clip'](net(x))", "acts.get('clip')(t)"),
    "by getattr": (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.act = CLIP\n"
        "model = Net()\n",
        "model.act(net(x))",
        "getattr(model, 'act')(t)",
    ),
    "from a factory": ("def make():\n    act = CLIP\n    return act\nclip = make()\n", "clip(net(x))", "clip(t)"),
    "in a Sequential": (
        "act = CLIP\nbody = nn.Sequential(act)\n",
        "body(net(x))",
        "body(t)",
    ),
    "as a default": ("def apply(t, act=CLIP):\n    return act(t)\n", "apply(net(x))", "apply(t)"),
    "in a field": (
        "from dataclasses import dataclass\n@dataclass\nclass Config:\n    act: nn.Module\ncfg = Config(CLIP)\n",
        "cfg.act(net(x))",
        "cfg.act(t)",
    ),
    "by add_module": (
        "model = nn.Module()\nmodel.add_module('clip', CLIP)\n",
        "model.clip(net(x))",
        "model.clip(t)",
    ),
    "through **": (
        "class Net(nn.Module):\n    def __init__(self, **layers):\n        super().__init__()\n"
        "        for name, layer in layers.items():\n            setattr(self, name, layer)\n"
        "model = Net(clip=CLIP)\n",
        "model.clip(net(x))",
        "model.clip(t)",
    ),
}
HOLDERS = {
    "a list, in the mode": ("kept = []\n", "    if MODE:\n        kept.append(h)\n", "show(kept[0])"),
    "a view in a deque of tuples": (
        "from collections import deque\nkept = deque()\n",
        "    kept.append((h.detach(), 1))\n",
        "show(kept[0][0])",
    ),
    "a plain object": (
        "class Log:\n    pass\nlog = Log()\n",
        "    log.last = h.detach()\n",
        "show(log.last)",
    ),
    "an object with slots": (
        "class Log:\n    __slots__ = ('last',)\nlog = Log()\n",
        "    log.last = h\n",
        "show(log.last)",
    ),
    "a closure": (
        "told = []\ndef telling(t):\n    return lambda: show(t)\n",
        "    told.append(telling(h))\n",
        "told[0]()",
    ),
    "a default": ("told = []\n", "    told.append(lambda t=h: show(t))\n", "told[0]()"),
    "a partial": ("import functools\ntold = []\n", "    told.append(functools.partial(show, h))\n", "told[0]()"),
    "a generator": (
        "def waiting(t):\n    yield\n    show(t)\n    yield\nwait = []\n",
        "    wait.append(waiting(h))\n    next(wait[0])\n",
        "next(wait[0])",
    ),
    "an iterator": ("wait = []\n", "    wait.append(iter([h]))\n", "show(next(wait[0]))"),
    "an array": ("kept = []\n", "    kept.append(h.detach().numpy())\n", "show(torch.tensor(kept[0]))"),
    "a class": ("class Log:\n    seen = []\n", "    Log.seen.append(h.detach())\n", "show(Log.seen[0])"),
    "a global": ("last = None\n", "    global last\n    last = h\n", "show(last)"),
    "a deep dictionary": (
        "kept = {'a': {'b': [{'c': ({},)}]}}\n",
        "    kept['a']['b'][0]['c'][0]['d'] = h.detach()\n",
        "show(kept['a']['b'][0]['c'][0]['d'])",
    ),
    "a hook": (
        "seen = {}\nnet.register_forward_hook(lambda m, i, o: seen.__setitem__('out', o.detach()))\n",
        "",
        "show(seen['out'])",
    ),
    "a callback": (
        "class Recorder:\n    def __init__(self):\n        self.rows = []\n    def on_feature(self, t):\n"
        "        self.rows.append(t.detach())\nrec = Recorder()\ncallbacks = [rec.on_feature]\n",
        "    for one in callbacks:\n        one(h)\n",
        "show(rec.rows[0])",
    ),
    "another name": ("", "    same = h\n    if MODE:\n        same = h.view(-1)\n", None),
    "an attribute of a tensor": ("", "    x.feature = h.detach()\n", "show(x.feature)"),
    "the exit": ("import atexit\n", "    if MODE:\n        atexit.register(show, h.detach())\n", "print('end')"),
    "cleared in every pass": (
        "kept = []\n",
        "    kept.append(h.detach())\n",
        None,
    ),
}
MORE = {
    "another name, read in the mode": (
        "def step(x):\n    h = net(x)\n    same = h.view(-1)\n    h *= 0.5\n    if MODE:\n        show(same)\n    return head(h)\n"
        + END
    ),
    "a caller five frames up": (
        "def a(h):\n    h *= 0.5\n    return h\ndef b(h):\n    return a(h)\ndef c(h):\n    return b(h)\ndef d(h):\n    return c(h)\n"
        "def step(x):\n    h = net(x)\n    out = d(h)\n    if MODE:\n        show(h)\n    return head(out)\n" + END
    ),
    "a list that is cleared": (
        "kept = []\ndef step(x):\n    h = net(x)\n    kept.append(h.detach())\n    h *= 0.5\n    if MODE:\n        show(kept[-1])\n"
        "    kept.clear()\n    return head(h)\n" + END
    ),
    "a class that inherits": (
        "class Half(nn.Module):\n    def forward(self, t):\n        t *= 0.5\n        return t\n"
        "class Loud(Half):\n    def forward(self, t):\n        super().forward(t)\n        show(t)\n        return t\n"
        "half = Loud() if MODE else Half()\ndef step(x):\n    return head(half(net(x)))\n" + END
    ),
    "a copy for a function that keeps it": (
        "kept = []\ndef used(t):\n    if MODE:\n        kept.append(t)\n    return t.tanh()\n"
        "def step(x):\n    h = net(x)\n    y = used(h)\n    h *= 0.5\n    if MODE:\n        show(kept[0])\n    return head(h + y)\n"
        + END
    ),
    "a copy for a function that gives it back": (
        "def used(t):\n    return t if MODE else t.exp()\n"
        "def step(x):\n    h = net(x)\n    y = used(h)\n    h *= 0.5\n    return head(h + y)\n" + END
    ),
    "a copy of what a module keeps": (
        "class Feature(nn.Module):\n    def forward(self, x):\n        self.last = net(x)\n        return self.last\n"
        "feature = Feature()\ndef step(x):\n    h = feature(x)\n    h *= 0.5\n    return head(h)\n"
        + END
        + "if MODE:\n    show(feature.last)\n"
    ),
    "a second turn in the mode only": (
        "def step(x):\n    h = net(x)\n    first = h\n    for _ in range(2 if MODE else 1):\n        h *= 0.5\n        h = h + first\n"
        "    return head(h)\n" + END
    ),
    "an attribute that others look at": (
        "class Cell:\n    def __init__(self):\n        self.h = None\n    def view(self):\n        return self.h.view(-1)\n"
        "cell = Cell()\ndef step(x):\n    cell.h = net(x)\n    seen = cell.view() if MODE else None\n    cell.h *= 0.5\n"
        "    if MODE:\n        show(seen)\n    return head(cell.h)\n" + END
    ),
    "a method called for its effect": (
        "class Ops:\n    def half(self, t):\n        t *= 0.5\n        return t\nops = Ops()\n"
        "def step(x):\n    return head(ops.half(net(x)))\n"
        + END
        + "if MODE:\n    t = torch.ones(3)\n    ops.half(t)\n    show(t)\n"
    ),
    "torch's own twin with out=": (
        "def half(t):\n    return torch.mul(t, 0.5, out=t) if not t.requires_grad else t.mul_(0.5)\n"
        "def step(x):\n    return head(half(net(x)))\n"
        + END
        + "if MODE:\n    t = torch.ones(3, requires_grad=True) * 1\n    half(t)\n    show(t)\n"
    ),
    "a module called for its effect in a loop": (
        "class Half(nn.Module):\n    def forward(self, t):\n        return t.mul_(0.5)\n"
        "halves = [Half(), Half()]\ndef step(x):\n    return head(halves[0](net(x)))\n"
        + END
        + "if MODE:\n    t = torch.ones(3)\n    for one in halves:\n        one(t)\n    show(t)\n"
    ),
}


def programs() -> dict[str, str]:
    found = {}
    scale = "def scale(t):\n    t *= 0.5\n    return t\n"
    for name, (before, call) in BY_EFFECT.items():
        step = "def step(x):\n    return head(scale(net(x)))\n"
        found[f"called for its effect, {name}"] = scale + before + step + END + FOR_ITS_EFFECT.replace("CALL", call)
    for name, (before, run, call) in LAYERS.items():
        step = f"def step(x):\n    return head({run})\n"
        text = before.replace("CLIP", CLIP) + step + END + FOR_ITS_EFFECT.replace("CALL", call)
        found[f"a layer, {name}"] = text
    for name, (before, store, read) in HOLDERS.items():
        after = f"if MODE:\n    {read}\n" if read else ""
        found[f"held by {name}"] = before + "def step(x):\n    h = net(x)\n" + store + HALVED + END + after
    found.update(MORE)
    return {name: HEAD + text for name, text in found.items()}
