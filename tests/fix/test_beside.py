"""What is shared beside the mended place is mended with it, or the edit is not called verified."""

from __future__ import annotations

import pytest


def edited(outcome):
    [source] = outcome.changed.values()
    return source.text


CLASS = """
import torch
torch.manual_seed(0)
class Meter:
    total = torch.zeros(3)
    smooth = torch.zeros(3)
    def __init__(self, name):
        self.name = name
    def update(self, x):
        self.total += x
        self.smooth.copy_(0.9 * self.smooth + 0.1 * x)
meters = [Meter("train"), Meter("valid")]
for step in range(3):
    meters[0].update(torch.rand(3))
    meters[1].update(torch.rand(3) * 10)
print([m.total.tolist() + m.smooth.tolist() for m in meters])
"""
DEFAULTS = """
import torch
torch.manual_seed(0)
class Stat:
    def __init__(self, count=torch.zeros(3), peak=torch.full((3,), -9.0)):
        self.count = count
        self.peak = peak
    def update(self, x):
        self.count += (x > 0.5).float()
        torch.maximum(self.peak, x, out=self.peak)
a, b = Stat(), Stat()
for step in range(3):
    a.update(torch.rand(3))
    b.update(torch.rand(3) * 3)
print(a.count, b.count, a.peak, b.peak)
"""
STATES = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(3, 1)
opt = torch.optim.Adam(net.parameters(), lr=0.3)
x, y = torch.randn(16, 3), torch.randn(16, 1)
def step():
    loss = (net(x) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
step()
weights = net.state_dict()
moments = opt.state_dict()
step()
step()
net.load_state_dict(weights)
opt.load_state_dict(moments)
step()
print(net.weight)
"""
ARGUMENTS = """
import torch
torch.manual_seed(0)
images, offsets = torch.rand(4, 4), torch.rand(4, 2)
class Data:
    def __getitem__(self, i):
        return self.prepare(images[i], offsets[i])
    def prepare(self, image, offset):
        image.sub_(0.5).div_(0.25)
        offset += 1.0
        return image, offset
data = Data()
w = torch.zeros(4, 2, requires_grad=True)
for epoch in range(2):
    for i in range(4):
        image, offset = data[i]
        (image @ w - offset).pow(2).mean().backward()
print(w.grad)
"""
# By name: the program, and what the edit of all that is shared has in it.
SHARED = {
    "attributes of one class": (CLASS, ("self.smooth = self.smooth.clone()",)),
    "defaults of one function": (DEFAULTS, ("count = ", "peak = torch.full((3,), -9.0) if peak is None else peak")),
    "weights and moments": (STATES, ("deepcopy(net.state_dict())", "deepcopy(opt.state_dict())")),
    "arguments of one function": (ARGUMENTS, ("image = image.", "offset = offset.clone()")),
}


@pytest.mark.parametrize("name", SHARED)
def test_what_is_shared_beside_it_is_mended_with_it(mend, name):
    program, parts = SHARED[name]
    outcome = mend(program)
    assert all(m.proved for m in outcome.mends)
    assert all(part in edited(outcome) for part in parts)
    assert any("mended with it" in m.verdict.words for m in outcome.mends)


def test_what_stays_shared_beside_it_is_told(mend):
    """Without a constructor no edit is known for the second attribute."""
    program = CLASS.replace("    def __init__(self, name):\n        self.name = name\n", "").replace('"train"', "")
    outcome = mend(program.replace('"valid"', ""))
    assert not outcome.changed
    assert "self.smooth at line 8" in outcome.mends[0].verdict.words


def test_a_list_that_got_the_value_before_it_is_written_may_be_meant_to_keep_it(mend):
    outcome = mend("""
        import torch
        from torch import nn
        torch.manual_seed(0)
        cell = nn.Linear(6, 4)
        def roll(xs):
            h = torch.zeros(2, 4)
            states = []
            for x in xs:
                h = torch.tanh(cell(torch.cat([x, h], 1)))
                states.append(h)
                h *= 0.9
            return torch.stack(states)
        (roll(torch.randn(5, 2, 2)) - 1).pow(2).mean().backward()
    """)
    assert not outcome.changed
    assert "states was given h" in outcome.mends[0].verdict.words


TWO_LOSSES = """
import torch
from torch import nn
torch.manual_seed(0)
trunk, a, b = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 1)
opt = torch.optim.SGD([*trunk.parameters(), *a.parameters(), *b.parameters()], lr=0.1)
for x in torch.randn(3, 16, 3):
    h = torch.tanh(trunk(x))
    first = (a(h) - 1).pow(2).mean()
    second = (b(h) + 1).pow(2).mean()
    opt.zero_grad()
    first.backward()
    second.backward()
    opt.step()
"""


def test_two_losses_share_their_graph(mend):
    """A detach would take the second loss from the trunk."""
    assert "first.backward(retain_graph=True)" in edited(mend(TWO_LOSSES))


def test_a_detach_that_takes_leaves_from_a_backward_is_not_verified(mend, monkeypatch):
    from torchsan.fix import rewrites

    monkeypatch.setitem(rewrites.REWRITES, "retained_graph", lambda spot: iter(()))
    outcome = mend(TWO_LOSSES)
    assert not outcome.changed
