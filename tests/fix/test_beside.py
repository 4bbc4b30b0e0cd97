"""What is shared beside the mended place is mended with it, or the edit is not called verified."""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "programs" / "fixes"


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


LATE = """
import torch
torch.manual_seed(0)
class Env:
    def __init__(self):
        self.state = torch.zeros(2)
    def step(self, a):
        self.state += a
env = Env()
seen, moves = [], []
for t in range(4):
    s = env.state
    move = torch.randn(2)
    env.step(move)
    seen.append(s)
    moves.append(move)
print((torch.stack(seen) * torch.stack(moves)).sum())
"""


def test_a_copy_of_what_was_written_since_it_was_taken_is_not_verified(mend):
    outcome = mend(LATE)
    assert not outcome.changed
    assert "has been written since it was taken: env.state at line 11" in outcome.mends[0].verdict.words


def test_what_a_handle_shows_is_copied_where_it_is_stored(mend):
    """Taken once, before the loop: it is looked at again and again."""
    program = LATE.replace("    s = env.state\n", "").replace("seen, moves", "s = env.state\nseen, moves")
    assert "seen.append(s.clone())" in edited(mend(program))


def test_memory_that_a_method_hands_out_is_copied_there(mend):
    program = LATE.replace("self.state += a\n", "self.state += a\n        return self.state\n")
    program = program.replace("    s = env.state\n", "").replace("    env.step(move)\n", "    n = env.step(move)\n")
    program = program.replace("seen.append(s)", "seen.append((s, n))\n    s = n").replace(
        "seen, moves = [], []", "seen, moves = [], []\ns = env.step(torch.zeros(2))"
    )
    program = program.replace("torch.stack(seen)", "torch.stack([b - a for a, b in seen])")
    assert "return self.state.clone()" in edited(mend(program))


def test_each_key_gets_a_value_of_its_own(mend):
    outcome = mend("""
        import torch
        names = ["a", "b"]
        sums = dict.fromkeys(names, torch.zeros(2))
        for i in range(4):
            sums[names[i % 2]] += torch.ones(2) * i
        print(sums)
    """)
    assert "{key: torch.zeros(2) for key in names}" in edited(outcome)


def test_a_graph_that_another_line_needs_is_not_cut(mend):
    outcome = mend(
        """
        import torch
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        joint = torch.is_inference_mode_enabled()
        total = 0.0
        for step in range(30):
            loss = net(torch.randn(8, 6)).pow(2).mean()
            total += loss
            if not joint:
                loss.backward()
        if joint:
            total.backward()
        print(float(total))
        """,
        limit=60,
    )
    assert not any(mend.proved for mend in outcome.mends)


MENDED = {
    "gliding_agent.py": "state = torch.tensor(nxt)",
    "spring_rollout.py": "pos = pos + self.dt * vel\n            track.append(pos)",
    "reservoir_scorer.py": "state = torch.zeros(UNITS) if state is None else state",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MENDED)
def test_programs_are_mended_as_their_authors_would(mend, name):
    assert MENDED[name] in edited(mend((PROGRAMS / name).read_text(), limit=100))
