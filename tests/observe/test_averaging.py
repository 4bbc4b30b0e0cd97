"""Sums between ranks, in a program that makes its first one in the middle of its run."""

from __future__ import annotations

import torch

import torchsan
from torchsan.observe import api
from torchsan.observe.averaging import Averaging


def _begun(averaging: Averaging) -> bool:
    averaging.begin()
    return averaging._passed


def test_who_begins_to_listen_knows_whether_a_backward_has_been():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with torchsan.watch():
        averaging = Averaging(api._current)
        assert not _begun(averaging)
        for _ in range(2):
            (weight * 2).sum().backward()
            assert _begun(averaging)
            optimizer.step()
            assert not _begun(averaging)
        weight.register_hook(lambda grad: seen.append(_begun(averaging)))
        seen: list[bool] = []
        (weight * 2).sum().backward()
        assert seen == [True]


def test_nobody_listens_for_other_ranks_until_there_are_some():
    with torchsan.watch():
        recorder = api._current
        names = {getattr(listener, "__qualname__", "") for listener in recorder.before_backward}
        assert not any(name.startswith(("Averaging", "CollectiveSensor")) for name in names)
        recorder.parallel()
        recorder.parallel()
        names = [getattr(listener, "__qualname__", "") for listener in recorder.before_backward]
        assert sum(name.startswith(("Averaging", "CollectiveSensor")) for name in names) == 2
