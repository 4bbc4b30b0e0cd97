"""The facts that alias findings rest on: where memory lies, who holds it, how it is written, what is read next."""

from __future__ import annotations

import ast
import functools
import sys

import pytest
import torch

from torchsan.observe.holders.census import take_census
from torchsan.observe.holders.extents import extent_of
from torchsan.observe.holders.lineage import lineage
from torchsan.observe.holders.manner import Manner, manner_of
from torchsan.observe.holders.reading import next_reads
from torchsan.observe.holders.takings import Takings, differed
from torchsan.observe.sites import user_frames

BASE = torch.arange(24.0).reshape(4, 6)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (BASE[0], BASE[1], False),
        (BASE[:, 0], BASE[:, 1], False),
        (BASE[:, 0], BASE[2], True),
        (BASE[1:3], BASE[2:], True),
        (BASE, BASE.clone(), False),
        (BASE.t(), BASE, True),
    ],
)
def test_views_meet_where_they_share_an_element(one, other, meet):
    first, second = extent_of(one), extent_of(other)
    assert first.meets(second) is meet
    assert second.meets(first) is meet


def test_memory_is_known_by_address_across_libraries():
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros((3, 2), dtype=numpy.float32)
    assert extent_of(torch.from_numpy(array)) == extent_of(array) == extent_of(torch.as_tensor(array))
    assert extent_of(torch.from_numpy(array)[1]) == extent_of(array[1])


@pytest.mark.parametrize(
    ("tensor", "folded"),
    [
        (torch.zeros(3).expand(4, 3), True),
        (torch.zeros(8).unfold(0, 3, 1), True),
        (torch.zeros(8).unfold(0, 2, 2), False),
        (BASE.t()[::2], False),
    ],
)
def test_memory_that_stands_for_several_elements(tensor, folded):
    assert extent_of(tensor).folded() is folded


@functools.lru_cache
def _table(n):
    return torch.zeros(n)


class _Holder:
    shared = torch.zeros(5)

    def __init__(self):
        self.kept = {"log": [(0, torch.zeros(6))]}


def _with_default(x, state=None, memory={"t": torch.zeros(7)}):  # noqa: B006, B008
    return x


def test_every_kind_of_slot_is_found():
    local, cached, holder = torch.zeros(2), _table(4), _Holder()

    def numbers():
        buffer = torch.zeros(9)
        while True:
            yield buffer

    running = numbers()
    next(running)
    closure = lambda: inner  # noqa: E731
    inner = torch.zeros(8)
    found = {(h.step.kind, h.extent.shape) for h in take_census(sys._getframe()).holdings}
    assert {("local", (2,)), ("cache", (4,)), ("class", (5,)), ("item", (6,)), ("item", (7,)), ("cell", (9,))} <= found
    assert {("local", (8,)), ("cell", (8,))} & found
    paths = {h.step.path for h in take_census(sys._getframe()).holdings}
    assert "holder.kept['log'][0][1]" in paths
    assert local is not cached
    assert holder.kept
    assert closure() is inner


def test_slots_that_were_filled_at_different_times():
    takings, state, log = Takings(), torch.zeros(3), []
    log.append(state)
    takings.note(take_census(sys._getframe()))
    state += 1
    log.append(state)
    census = take_census(sys._getframe())
    takings.note(census)
    first, second = (next(h for h in census.holdings if h.step.path == f"log[{i}]") for i in range(2))
    assert differed(takings.of(first), takings.of(second))
    assert takings.changed_since(first)
    assert not takings.changed_since(second)


@pytest.mark.parametrize(
    ("op", "args", "manner"),
    [
        ("mul_", (2,), Manner.TRANSFORMED),
        ("sub_", (torch.ones(6),), Manner.TRANSFORMED),
        ("add_", (torch.ones(4, 6),), Manner.ACCUMULATED),
        ("copy_", (torch.ones(4, 6),), Manner.REPLACED),
        ("__setitem__", (0, 1.0), Manner.EDITED),
        ("__setitem__", (0, torch.ones(6)), Manner.FILLED),
        ("__setitem__", (slice(None), torch.ones(4, 6)), Manner.REPLACED),
        ("masked_fill_", (torch.ones(4, 6).bool(), 0.0), Manner.EDITED),
    ],
)
def test_manner_of_a_write(op, args, manner):
    assert manner_of(op, BASE, (BASE, *args)) is manner


def test_what_is_read_next():
    def body():
        kept, form, anew, later = 1, 2, 3, 4
        frame = sys._getframe()
        found = {n: bool(next_reads(frame, n)) for n in ("kept", "form", "anew", "later")}
        anew = kept
        return found, type(form), anew, [later]

    found = body()[0]
    assert found == {"kept": True, "form": False, "anew": False, "later": True}


def test_reads_behind_a_loop():
    def body():
        best, found = 0, None
        for _ in range(1):
            found = (next_reads(sys._getframe(), "best"), next_reads(sys._getframe(), "best", after_loops=True))
        return found, best

    (ahead, behind), _ = body()
    assert not ahead
    assert behind


def test_a_census_around_memory_finds_its_views_and_nothing_else():
    rows, other = torch.zeros(4, 3), torch.zeros(4, 3)
    kept = {"second": rows[1], "array": rows.numpy(), "other": other}
    census = take_census(sys._getframe(), around=(rows[0],))
    mine = {h.step.path for h in census.holdings if h.step.root.part in ("kept", "rows", "other")}
    assert kept
    assert mine == {"rows", "kept['second']", "kept['array']"}


def test_a_line_reaches_memory_through_its_callers_containers():
    buffers = [torch.zeros(2), torch.zeros(2)]
    found = []

    def change(buffer):
        found.extend(lineage(ast.parse("buffer").body[0].value, user_frames(sys._getframe())))

    for one in buffers:
        change(one)
    assert any(ancestor.value is buffers and ancestor.each for ancestor in found)
    assert any(ancestor.value is buffers[0] and not ancestor.each for ancestor in found)


class _Kept(torch.nn.LSTM):
    def __init__(self):
        super().__init__(2, 2)
        self.rows = [torch.zeros(11)]


def test_lists_that_torch_keeps_of_a_modules_tensors_are_its_own():
    net, kept = torch.nn.LSTM(2, 2), _Kept()
    net.rows = [torch.zeros(13)]  # somebody else's
    paths = {h.step.path for h in take_census(sys._getframe()).holdings}
    assert {"net.weight_ih_l0", "net.rows[0]", "kept.rows[0]"} <= paths
    assert not [path for path in paths if "_flat_weights" in path]
    assert kept is not net
