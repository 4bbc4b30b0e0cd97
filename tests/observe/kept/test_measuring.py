"""Figures with a known answer, and agreement with a count that knows nothing of graphs."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.checkpoint import checkpoint

from torchsan.observe.kept import measuring
from torchsan.observe.kept.saved import kept_by
from torchsan.rules import all_rules

BY_HAND = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(10, 20)
        self.second = nn.Linear(20, 5)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.second(h)

net = Net()
for rows in (8, 32, 16):
    loss = net(torch.ones(rows, 10)).exp().sum()
    loss.backward()
"""


def test_bytes_by_hand(measured):
    """Kept at 32 rows: the input (32x10), tanh's result (32x20, also the second layer's input), exp's result (32x5)."""
    memory = measured(BY_HAND).memory
    assert memory.peak.step == 2
    assert memory.peak.kept_bytes == 4 * 32 * (10 + 20 + 5)
    assert [step.kept_bytes for step in memory.steps] == [4 * rows * 35 for rows in (8, 32, 16)]
    rows = {(row.line, row.module, row.bytes) for row in memory.kept}
    assert rows == {(12, "Net.first", 4 * 32 * 10), (13, "Net.second", 4 * 32 * 20), (17, "", 4 * 32 * 5)}
    assert sum(row.bytes for row in memory.kept) == memory.peak.kept_bytes


def test_a_storage_counts_once(measured):
    memory = measured(
        "import torch\nx = torch.ones(100, requires_grad=True)\ny = x.neg()\n"
        "z = y * y + y.view(10, 10).t().exp().sum() + y[:50].sin().sum()\nz.sum().backward()\n"
    ).memory
    # y (400 bytes) under five names, and the result of exp (400 bytes).
    assert memory.peak.kept_bytes == 800


def test_without_a_backward_there_is_nothing(measured):
    report = measured("import torch\ntorch.ones(2, requires_grad=True).exp()\n")
    assert report.memory.steps == []
    assert report.memory.as_json()["kept_bytes"] == 0


class Live(TorchDispatchMode):
    """Every storage that an op returned, by weak reference: what of it is alive is a matter of fact."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_iter(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.seen or self.seen[storage._cdata][0]() is None:
                    self.seen[storage._cdata] = (weakref.ref(storage), storage.nbytes())
        return result

    def alive(self, but):
        gc.collect()
        return sum(size for key, (storage, size) in self.seen.items() if storage() is not None and key not in but)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(x + self.norm(self.conv(x)))


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.blocks = nn.ModuleList(Block(16) for _ in range(4))
        self.reentrant = reentrant

    def forward(self, x):
        x = self.blocks[0](x)
        for block in self.blocks[1:]:
            x = checkpoint(block, x, use_reentrant=self.reentrant, preserve_rng_state=False)
        return x


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        layers = (nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(2))
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(32, 50)

    def forward(self, ids):
        return self.head(self.layers(self.embed(ids))).logsumexp(-1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.cell = nn.LSTM(16, 32, 2, batch_first=True), nn.GRUCell(32, 32)

    def forward(self, x):
        y, _ = self.lstm(x)
        h = torch.zeros(x.size(0), 32)
        for t in range(y.size(1)):
            h = self.cell(y[:, t], h)
        return h


NETS = {
    "residual": (lambda: nn.Sequential(*(Block(16) for _ in range(4))), lambda: torch.randn(4, 16, 16, 16)),
    "language": (Language, lambda: torch.randint(0, 50, (4, 12))),
    "recurrent": (Recurrent, lambda: torch.randn(4, 9, 16)),
    "checkpointed": (lambda: Checkpointed(False), lambda: torch.randn(4, 16, 16, 16)),
    "checkpointed, reentrant": (lambda: Checkpointed(True), lambda: torch.randn(4, 16, 16, 16)),
}


@pytest.mark.parametrize("name", NETS)
def test_the_count_agrees_with_live_storages(name):
    make, inputs = NETS[name]
    net, x = make(), inputs()
    with Live() as live:
        loss = net(x).pow(2).mean()
    anyway = {t.untyped_storage()._cdata for t in (*net.parameters(), *net.buffers(), x, loss)}
    alive = live.alive(anyway)
    kept = sum(one.storage_bytes for one in kept_by([loss.grad_fn]).kept if one.memory not in anyway)
    assert alive > 10_000
    assert kept == pytest.approx(alive, rel=0.01)


def test_measuring_changes_nothing(measured):
    source = (
        "import torch\ntorch.manual_seed(0)\nnet = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))\n"
        "for _ in range(3):\n    net(torch.randn(8, 4)).pow(2).mean().backward()\n"
        "import builtins\nbuiltins.result = [p.grad.clone() for p in net.parameters()] + [torch.get_rng_state()]\n"
    )
    import builtins

    exec(source, {})
    alone = builtins.result
    measured(source)
    try:
        assert all(torch.equal(a, b) for a, b in zip(alone, builtins.result, strict=True))
    finally:
        del builtins.result


RULES = [all_rules()[code] for code in ("TS501", "TS502", "TS503", "TS504")]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_bad_is_reported_and_good_is_silent(rule, measured):
    found = [finding for finding in measured(rule.bad).findings if finding.code == rule.code]
    assert [finding.primary.line for finding in found] == [rule.bad_line()]
    assert measured(rule.good).findings == []


PEAK = """
import torch
x = torch.ones(1000, requires_grad=True)
for _ in range(3):
    x.grad = None
    y = x * 2
    z = y.exp()
    loss = z.sum()
    loss.backward()
"""


def test_the_peak_of_a_step_by_hand(measured):
    """At the start of the step x, its gradient, y and z are there, 4000 bytes each, and the loss and its gradient.

    In backward x, y, z, the gradient of y and that of x are there at a time: one more. Outside of it never more than
    four: the gradient goes before y is made anew, and the old y and z go when the new ones are bound.
    """
    memory = measured(PEAK).memory
    peak = memory.followed
    assert peak.after == 1
    assert peak.in_backward
    assert peak.bytes - peak.begin_bytes == 4000
    assert peak.forward_bytes == peak.begin_bytes
    assert memory.peak_bytes == peak.bytes


def test_a_step_is_not_followed_under_modes_of_the_program(measured):
    source = "from torch.utils._python_dispatch import TorchDispatchMode\nwith TorchDispatchMode():\n    pass\n" + PEAK
    assert measured(source).memory.followed is not None
    within = PEAK.replace("for _ in range(3):", "Mode().__enter__()\nfor _ in range(3):")
    head = (
        "from torch.utils._python_dispatch import TorchDispatchMode\n"
        "class Mode(TorchDispatchMode):\n"
        "    def __torch_dispatch__(self, func, types, args=(), kwargs=None):\n"
        "        return func(*args, **(kwargs or {}))\n"
    )
    pop = "from torch.utils._python_dispatch import _pop_mode\n_pop_mode()\n"
    assert measured(head + within + pop).memory.followed is None


COPIES = """
import torch
first, second = torch.nn.Linear(64, 256), torch.nn.Linear(256, 1)
for step in range(3):
    h = torch.relu(first(torch.randn(128, 64)))
    {}
    loss.backward()
"""


@pytest.mark.parametrize(
    "body",
    [
        "kept = h.clone(); kept.mul_(2.0); loss = second(kept).mean() + h.mean()",
        "kept = h.clone(); h2 = h.sum(); h.data.add_(1.0); loss = second(kept).mean() + h2",
        "kept = h[:, :128].clone(); loss = kept.pow(2).mean() + second(h).mean()",
        "kept = h[:1].expand(128, 256).clone(); loss = second(kept).mean() + h.mean()",
        "kept = h.clone(); kept.detach().numpy(); loss = second(kept).mean() + h.mean()",
    ],
)
def test_a_copy_that_is_needed_is_not_spoken_of(measured, body):
    assert "TS503" not in [finding.code for finding in measured(COPIES.format(body)).findings]


def test_a_large_tensor_that_is_held_anyway_is_not_spoken_of(measured):
    source = (
        all_rules()["TS502"]
        .bad.replace("return torch", "global whole\n    whole = torch")
        .replace("16)[:, 0]", "16)\n    return whole[:, 0]")
    )
    assert "whole[:, 0]" in source
    assert measured(source).findings == []


SAMPLED = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
for step in range(40):
    loss = net(torch.ones(8, 4)).exp().sum()
    loss.backward(retain_graph={retain})
"""


class Few:
    """A share that is so many looks."""

    def __init__(self, looks, _share):
        self.left, self.spent = looks, 0.0

    def allows(self):
        self.left -= 1
        return self.left >= 0

    def spending(self):
        return contextlib.nullcontext()

    def earn(self, seconds):
        pass


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(measuring, "Share", Few)
    monkeypatch.setattr(measuring, "ALLOWANCE", 2)
    return monkeypatch


def test_steps_beyond_the_share_are_not_followed(measured, few):
    """Modules are known in every pass that is measured, and torch's list of hooks is empty in between and at the end."""
    from torch.nn.modules import module as module_hooks

    memory = measured(SAMPLED.format(retain=False)).memory
    assert memory.passes == 40
    assert [step.step for step in memory.steps] == [1, 2, 3]
    assert {row.module for row in memory.kept} == {"Sequential.0", "Sequential.1", ""}
    assert {row.calls for row in memory.modules} == {3}
    assert not module_hooks._global_forward_hooks
    assert not module_hooks._global_forward_pre_hooks


def test_passes_that_bring_nothing_new_are_mostly_left_alone(measured, few):
    few.setattr(measuring, "ALLOWANCE", 1000)
    few.setattr(measuring, "PLAIN", 0)  # when steps are left alone for comparison hangs on the clock
    memory = measured(SAMPLED.format(retain=False)).memory
    assert [step.step for step in memory.steps] == [*range(1, 10), 14, 19, 24, 29, 34, 39]
    longer = SAMPLED.format(retain=False).replace("ones(8", "ones(8 + step")
    assert len(measured(longer).memory.steps) == 40


def test_a_retained_graph_is_asked_for_where_nothing_is_measured(measured, few):
    few.setattr(measuring, "ASKING", (100, 0))
    report = measured(SAMPLED.format(retain=True))
    assert len(report.memory.steps) == 3
    assert [finding.code for finding in report.findings] == ["TS504"]
    again = SAMPLED.format(retain="step == 20") + "    if step == 20: loss.backward()\n"
    assert measured(again).findings == []
    few.setattr(measuring, "ASKING", (0, 0))
    assert measured(SAMPLED.format(retain=True)).findings == []
