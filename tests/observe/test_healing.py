"""`heal`: gradients are those of the program as written; the report lists the lines to mend."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import torchsan


def _gradient(run, heal: bool):
    torch.manual_seed(0)
    layer = nn.Linear(4, 4, dtype=torch.float64)
    x = torch.randn(3, 4, dtype=torch.float64)
    if heal:
        with torchsan.heal() as report:
            loss = run(layer, x)
        loss.backward()  # outside the block
        return layer.weight.grad, report
    run(layer, x).backward()
    return layer.weight.grad, None


def _write_slice(h):
    h[1:, 2:] = 3.0
    return h


WRITES = {
    "add_": (lambda h: h.add_(1), lambda h: h + 1),
    "offset view": (lambda h: h[2:].mul_(10) is None or h, lambda h: torch.cat([h[:2], h[2:] * 10])),
    "slice": (_write_slice, lambda h: _write_slice(h.clone())),
    "relu": (lambda h: F.relu(h - 0.5, inplace=True), lambda h: F.relu(h - 0.5)),
    "data": (lambda h: h.data.zero_() is None or h, lambda h: h + 0),
}


@pytest.mark.parametrize(("write", "twin"), WRITES.values(), ids=WRITES.keys())
@pytest.mark.parametrize("save", [torch.exp, torch.sigmoid, torch.tanh, lambda h: h * h])
def test_gradient_is_that_of_the_out_of_place_twin(write, twin, save):
    healed, _ = _gradient(lambda layer, x: write(save(layer(x))).sum(), heal=True)
    expected, _ = _gradient(lambda layer, x: twin(save(layer(x))).sum(), heal=False)
    assert torch.allclose(healed, expected)


def test_report_names_save_and_write():
    with torchsan.heal() as report:
        h = torch.exp(nn.Linear(2, 2)(torch.ones(1, 2)))
        h += 1
        h.sum().backward()
    (finding,) = report.findings
    assert finding.code == "TS101"
    assert finding.span("mutated").line == finding.span("saved").line + 1
    assert "`exp`" in finding.message


def test_what_is_not_needed_is_not_reported():
    with torchsan.heal() as report:
        h = torch.exp(nn.Linear(2, 2)(torch.ones(1, 2)))
        h += 1
        nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
    assert report.findings == []


def test_optimizer_step_between_forward_and_backward():
    layer = nn.Linear(3, 3)
    before = layer.weight.detach().clone()
    opt = torch.optim.SGD(layer.parameters(), lr=1.0)
    x = torch.randn(2, 3, requires_grad=True)
    with torchsan.heal() as report:
        y = layer(x)
        layer(torch.ones(1, 3)).sum().backward()
        opt.step()
        y.sum().backward()
    assert torch.allclose(x.grad, before.sum(0).expand(2, 3))
    assert [finding.code for finding in report.findings] == ["TS105"]


def test_double_backward_goes_through_healed_values():
    x = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    with torchsan.heal():
        y = torch.exp(x)
        z = y * 1.0
        y.detach().zero_()
        (g,) = torch.autograd.grad(z.sum(), x, create_graph=True)
        (gg,) = torch.autograd.grad(g.sum(), x)
    assert torch.allclose(gg, torch.exp(x))


def test_nothing_is_copied_and_nothing_outlives_the_graph():
    with torchsan.heal():
        h = torch.exp(nn.Linear(2, 2)(torch.ones(1, 2)))
        storage = h.untyped_storage().data_ptr()
        assert h.grad_fn._saved_result.untyped_storage().data_ptr() == storage
        reference = weakref.ref(h)
        h.sum().backward()
        del h
        gc.collect()
        assert reference() is None


OPS = {
    "exp": lambda t: t.clamp(max=1).exp(),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "square": lambda t: t * t,
    "add": lambda t: t + 1,
    "add_": lambda t: t.add_(1),
    "mul_": lambda t: t.mul_(0.5),
    "tail_": lambda t: t[1:].mul_(2) is None or t,
    "set": _write_slice,
    "relu_": lambda t: t.relu_(),
}
TWINS = OPS | {
    "add_": lambda t: t + 1,
    "mul_": lambda t: t * 0.5,
    "tail_": lambda t: torch.cat([t[:1], t[1:] * 2]),
    "set": lambda t: _write_slice(t.clone()),
    "relu_": lambda t: t.relu(),
}


@settings(max_examples=60)
@given(st.lists(st.sampled_from(sorted(OPS)), min_size=1, max_size=8))
def test_random_chains(names):
    def chain(table):
        def run(layer, x):
            h = layer(x)
            total = 0.0
            for name in names:
                h = table[name](h)
                total = total + h.sum()
            return total + (h * h).sum()

        return run

    # An op that writes the value summed before is not its out-of-place twin there; compare what flows on only.
    healed, _ = _gradient(chain(OPS), heal=True)
    expected, _ = _gradient(chain(TWINS), heal=False)
    assert torch.allclose(healed, expected, equal_nan=True)
