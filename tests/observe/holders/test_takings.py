"""Slots are the same slots only while their owner lives: addresses are used again."""

from __future__ import annotations

import sys
from collections import OrderedDict

import torch

from torchsan.observe.holders.census import take_census
from torchsan.observe.holders.takings import Takings


def test_a_container_that_is_gone_hands_nothing_on_to_the_next_at_its_address():
    shared, takings = torch.zeros(3), Takings()
    held = {"now": OrderedDict(buffer=shared)}
    takings.note(take_census(sys._getframe(), around=[shared]))
    shared.add_(1)

    def taken():
        census = take_census(sys._getframe(), around=[shared])
        return [takings.of(one) for one in census.holdings if one.step.path.endswith("['buffer']")]

    assert [one.tick for one in taken()] == [1]
    again = False
    for _ in range(100):
        before = id(held["now"])
        del held["now"]
        held["now"] = OrderedDict(buffer=shared)
        if id(held["now"]) == before:
            again = True
            break
    assert taken() == [None]
    assert again or sys.implementation.name != "cpython"


class _Frames:
    def __init__(self, entries):
        self.entries = entries


def test_a_list_that_is_made_anew_goes_on_holding_what_it_held():
    shared, takings = torch.zeros(3), Takings()
    frames = _Frames([shared.detach()])

    def ticks():
        census = take_census(sys._getframe(), around=[shared])
        takings.note(census)
        return [takings.of(one).tick for one in census.holdings if one.step.path.startswith("frames.entries")]

    assert ticks() == [1]
    shared.add_(1)
    frames.entries = [*frames.entries, shared.detach()]
    assert ticks() == [1, 2]
    frames.entries = frames.entries[1:]
    assert ticks() == [2]
