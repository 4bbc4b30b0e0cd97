"""Ten thousand steps leave no more of our own records than one thousand: counted, on both sensors."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Iterator

import pytest
import torch

import torchsan
from torchsan.observe import native
from torchsan.observe.api import current
from torchsan.observe.kept import growth
from torchsan.observe.ledger import MAX_MEMORIES, MAX_STEPS
from torchsan.observe.sensors.exposure import ExposureSensor
from torchsan.observe.timing import Share

# Multiples of the 512 passes after which old writes are forgotten, so that like is compared with like.
STEPS, EARLY = 20 * MAX_STEPS, 2 * MAX_STEPS
SHARES = {name: method for name, method in vars(Share).items() if name in ("allows", "granted")}
# The native part keeps what it knows of a memory until it knows of too many.
BOUNDED = {"native records", "native memories"}
OURS = os.path.join(os.path.dirname(torchsan.__file__), "*")


def step(weight: torch.nn.Parameter, kept: torch.Tensor) -> None:
    """A write of each kind: to fresh memory, to memory that stays, by index, behind autograd's back."""
    h = weight * 2
    h.mul_(3)
    kept.add_(1)
    kept[0] = 1
    h.sum().backward()
    weight.data.sub_(0.1)
    with torch.no_grad():
        weight -= 0.1
        weight.grad.zero_()


def our_bytes() -> int:
    gc.collect()
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, OURS)])
    return sum(entry.size for entry in snapshot.statistics("filename"))


def sampled(weight: torch.nn.Parameter, kept: torch.Tensor) -> Iterator[int]:
    """How many memories are known at a time goes up and down by some dozens, at about a kilobyte each."""
    for _ in range(4):
        for _ in range(16):
            step(weight, kept)
        yield our_bytes()


def records() -> dict[str, int]:
    recorder = current()
    assert recorder is not None
    ledger = recorder.ledger
    part = native.load()
    exposure = next(one for one in recorder._sensors if isinstance(one, ExposureSensor))
    found = {
        "log": sum(map(len, ledger.log.raw.values())),
        "silent": sum(map(len, ledger.silent.values())),
        "steps": len(ledger.steps),
        "passes": len(ledger.passes),
        "exposed": len(exposure.exposed),
    }
    if part is not None:
        found |= {f"native {key}": value for key, value in part.counts().items()}
    return found


@pytest.mark.slow
def test_ten_thousand_steps_leave_no_more_than_one_thousand(sensor, monkeypatch):
    # Looks have their share of the time, as in a real run.
    for name, method in SHARES.items():
        monkeypatch.setattr(Share, name, method)
    # A ring of that many numbers, one for a pass now and then: a smaller one is filled before memory is looked at.
    monkeypatch.setattr(growth, "MAX_TICKS", 64)
    weight, kept = torch.nn.Parameter(torch.ones(4)), torch.zeros(4)
    with torchsan.watch() as report:
        for _ in range(EARLY):
            step(weight, kept)
        early = records()
        for _ in range(STEPS - 3 * EARLY):
            step(weight, kept)
        tracemalloc.start()  # slow, so only for the last steps; what is kept of the last passes is renewed first
        try:
            for _ in range(EARLY // 2):
                step(weight, kept)
            early_bytes = max(sampled(weight, kept))
            for _ in range(3 * EARLY // 2):
                step(weight, kept)
            late, late_bytes = records(), min(sampled(weight, kept))
        finally:
            tracemalloc.stop()
    assert "stepped_aside" not in report.extra
    # A freed address may come again or another may come instead: a handful of memories more or less says nothing.
    for name, count in late.items():
        if name not in BOUNDED:
            assert count <= 1.5 * early[name] + 64 * 4, (name, early, late)
    assert late.get("native memories", 0) <= MAX_MEMORIES
    assert late_bytes <= 1.5 * early_bytes, (early_bytes, late_bytes)
