"""Writes whose healed run is no measure: each forward makes a refused one, or autograd does not see it."""

from __future__ import annotations

import pytest
from tests.fix.conftest import edited

from torchsan.fix.candidates import Candidate
from torchsan.fix.engine import Engine
from torchsan.fix.source import Edit

MODEL = """
import torch
torch.manual_seed(0)
class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.queries = torch.nn.Parameter(torch.rand(2, 3))
        self.code = torch.linspace(0.5, 2.0, 3)
        self.out = torch.nn.Linear(3, 1)
        self.ready = False
    def forward(self, x):
{body}
        return self.out(torch.tanh(queries) * x).pow(2).mean()
model = Decoder()
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
for _ in range(3):
    opt.zero_grad()
    loss = model(torch.ones(2, 3))
    loss.backward()
    opt.step()
with torch.no_grad():
    print(model(torch.ones(2, 3)).item())
print(model.queries.sum().item())
"""
IN_FORWARD = {
    "added to": "queries = self.queries\n        queries += self.code",
    "by a helper": "queries = self.queries\n        shift(queries, self.code)",
    "bounded": "queries = self.queries\n        queries.clamp_(0.2, 0.8)",
    "a running mean": "queries = self.queries\n        queries.mul_(0.9).add_(0.1 * torch.rand(3))",
    "all of a list": "queries = self.queries\n        torch._foreach_add_([queries], [self.code])",
    "a start value": "queries = self.queries\n        if not self.ready:\n            queries += self.code\n"
    "            self.ready = True",
}


def forward(name: str) -> str:
    source = MODEL.format(body=f"        {IN_FORWARD[name]}")
    return source.replace("model = Dec", "def shift(q, code):\n    q.add_(code)\nmodel = Dec")


def test_a_refused_write_of_every_forward_means_a_new_value(mend):
    outcome = mend(forward("added to"))
    [found] = outcome.mends
    assert found.proved, found.dropped
    assert "queries = queries + self.code" in edited(outcome)
    assert "the parameter keeps its own" in found.verdict.words


# By name: the program, and what an edit makes of it that is not what is meant, or of which nobody knows that it is.
WRONG = {
    "the code is added at every forward": (
        "added to",
        "queries += self.code",
        "with torch.no_grad(): queries += self.code",
    ),
    "the code is added by .data": ("added to", "queries += self.code", "queries.data += self.code"),
    "the code is added by a helper": ("by a helper", "q.add_(code)", "q.data.add_(code)"),
    "a bound may be meant for good": ("bounded", "queries.clamp_", "queries = queries.clamp"),
    "a bound may be meant for the value": ("bounded", "queries.clamp_", "with torch.no_grad(): queries.clamp_"),
    "a running mean may be meant to stay": (
        "a running mean",
        "queries.mul_(0.9).add_",
        "queries = queries.mul(0.9).add",
    ),
    "a running mean may be meant for the value": (
        "a running mean",
        "queries.mul_",
        "with torch.no_grad(): queries.mul_",
    ),
    "the code is added to all of a list": (
        "all of a list",
        "torch._foreach_add_([queries], [self.code])",
        "with torch.no_grad(): torch._foreach_add_([queries], [self.code])",
    ),
    "a start value is to stay": ("a start value", "queries += self.code", "queries = queries + self.code"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_trained_is_not_changed_unseen(name, weigh):
    program, old, new = WRONG[name]
    assert weigh(forward(program), old, new) != "proved"


def test_a_start_value_is_written_to_the_parameter(weigh):
    old = "queries += self.code"
    assert weigh(forward("a start value"), old, f"with torch.no_grad(): {old}") == "proved"


# -- writes that autograd does not see --------------------------------------------------------------------------

READER = """
import torch
torch.manual_seed(0)
layer = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(layer.parameters(), lr=0.5)
for _ in range(3):
    x = torch.randn(5, 4)
    attn = torch.softmax(layer(x), -1)
    {write}
    loss = {loss}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
LOSS = "(attn @ x.t()).pow(2).mean()"
UNSEEN = {
    "data": ".data[attn.data < 0.25] = 0",
    "detach": ".detach()[attn.detach() < 0.25] = 0",
    "no_grad": "[attn < 0.25] = 0",
}


def reader(name: str, loss: str = LOSS) -> str:
    write = f"attn{UNSEEN[name]}"
    return READER.format(write=f"with torch.no_grad():\n        {write}" if name == "no_grad" else write, loss=loss)


@pytest.mark.parametrize("name", UNSEEN)
def test_an_unseen_write_to_a_copy_is_as_unseen(name, weigh):
    old = "with torch.no_grad():" if name == "no_grad" else f"attn{UNSEEN[name]}"
    assert weigh(reader(name), old, f"attn = attn.clone()\n    {old}") != "proved"


@pytest.mark.parametrize("name", UNSEEN)
def test_it_is_made_so_that_autograd_sees_it(name, mend):
    outcome = mend(reader(name))
    [found] = outcome.mends
    assert found.proved, (found.verdict, found.dropped)
    assert "attn = attn.masked_fill(" in edited(outcome)
    assert "no_grad" not in edited(outcome)
    assert "differences of losses" in found.verdict.words


def test_an_unseen_write_that_nothing_reads_is_right_on_a_copy(weigh):
    """What is written is used for a count only: the gradient is that of the loss."""
    source = READER.format(
        write="out = attn @ x.t()\n    attn.data[attn.data < 0.25] = 0\n    print(attn.sum())", loss="out.mean()"
    )
    old = "attn.data[attn.data"
    assert weigh(source, old, f"attn = attn.clone()\n    {old}") == "proved"


@pytest.fixture
def weigh(tmp_path, lab):
    """What is said of one edit of a program, for its first finding."""

    def verdict(source: str, old: str, new: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(source)
        engine = Engine(lab(path, 10))
        before = engine.trial({}, "watch")
        known = engine.sources.get(str(path))
        start = known.text.index(old)
        candidate = Candidate(old, known, (Edit(start, start + len(old), new),))
        assert candidate.result() is not None
        target = before.alarms[0]
        verdict, after, _ = engine._try(candidate, target, before)
        if verdict.kind == "proved":
            _, verdict, _ = engine._claimed(candidate, verdict, target, after)
        print(verdict.words)
        return verdict.kind

    return verdict
