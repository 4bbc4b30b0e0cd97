"""The text prefilter only saves time: what it drops, the engine finds nothing in.

The corpus is every example of the rules and every program of the other tests of `check`, followed both ways.
"""

from __future__ import annotations

import pytest
from tests.check.test_hazards import BROKEN
from tests.check.test_hazards import HEAD as HAZARDS_HEAD

from torchsan.check.analyse import analyse
from torchsan.check.choosing.files import Source
from torchsan.rules import all_rules

REAL = {
    "reads itself on the writing line": "def f(x):\n    y = x * 2\n    y /= y.norm()\n    return y\n",
    "tensors in a list": "def f(xs, net):\n    ys = [torch.tanh(x) for x in xs]\n    ys[0] += 1\n    return ys\n",
    "an argument through a view": "def f(x: torch.Tensor):\n    y = x.flatten()\n    y[0] = 0\n    return y * 2\n",
    "a private helper writes": "def _h(t):\n    t.clamp_(0)\n    return t\n\n\ndef f(x: torch.Tensor):\n    return _h(x) + 1\n",
    "parameters of a layer": (
        "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        for m in self.modules():\n"
        "            if isinstance(m, nn.Linear):\n                m.weight.copy_(torch.zeros(1))\n"
    ),
    "optional argument": (
        "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.e = nn.Embedding(3, 3)\n\n"
        "    def forward(self, ids=None, embeds: torch.Tensor = None):\n        if embeds is None:\n            embeds = self.e(ids)\n"
        "        embeds *= 2.0\n        return embeds.exp()\n"
    ),
    "thrown away": "def f(x: torch.Tensor):\n    x.masked_fill(x > 0, 0.0)\n    return x\n",
}
PROGRAMS = {f"{r.code} {kind}": text for r in all_rules().values() for kind, text in (("bad", r.bad), ("good", r.good))}
PROGRAMS |= {name: HAZARDS_HEAD + text for name, text in BROKEN.items()}
PROGRAMS |= {name: "import torch\nfrom torch import nn\n\n\n" + text for name, text in REAL.items()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_ways_say_the_same(name: str) -> None:
    import textwrap

    source = Source("program.py", textwrap.dedent(PROGRAMS[name]).lstrip("\n"))
    ways = [analyse(source, filtered=filtered).findings for filtered in (True, False)]
    shown = [{(f.code, f.primary.line) for f in found if f.certainty != "possible"} for found in ways]
    assert shown[0] == shown[1]


@pytest.mark.parametrize("name", REAL)
def test_these_are_found(name: str) -> None:
    assert analyse(Source("program.py", PROGRAMS[name]), possible=True).findings
