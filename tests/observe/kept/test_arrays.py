"""Arrays of objects are found by whoever holds them, also where the collector does not follow."""

from __future__ import annotations

import gc
import sys

import pytest

from torchsan.observe.kept.arrays import Arrays
from torchsan.observe.kept.upward import Upward

numpy = pytest.importorskip("numpy")


class Table:
    def __init__(self, cells):
        self.cells = cells


def cells_with(value):
    cells = numpy.empty((2, 3), dtype=object)
    cells[1, 2] = value
    return cells


def name_of(up, address):
    way = up.way(address)
    return way.path if way is not None else None


class Thing:
    pass


def test_an_array_in_a_variable():
    cells = cells_with(Thing())
    address = id(cells[1, 2])
    assert name_of(Upward([cells[1, 2]], arrays=True), address) == "cells[…]"


def test_a_dictionary_that_is_not_tracked():
    """Whoever has asked for an object's dictionary gets one that holds an array and nothing that is collected."""
    table = Table(cells_with(Thing()))
    assert not gc.is_tracked(vars(table))
    address = id(table.cells[1, 2])
    assert name_of(Upward([table.cells[1, 2]], arrays=True), address) == "table.cells[…]"


def test_tuples_in_each_other():
    table = Table((("first", cells_with(Thing())), 1))
    vars(table)
    gc.collect()  # a tuple goes when all that it holds is not tracked: the inner one first
    gc.collect()
    assert not gc.is_tracked(table.cells)
    address = id(table.cells[0][1][1, 2])
    assert name_of(Upward([table.cells[0][1][1, 2]], arrays=True), address) == "table.cells[0][1][…]"


def test_records_with_objects():
    table = numpy.zeros(4, dtype=[("step", "i8"), ("loss", object)])
    table[2] = (7, Thing())
    address = id(table["loss"][2])
    assert name_of(Upward([table["loss"][2]], arrays=True), address) == "table[…]"


def test_numbers_are_of_no_interest():
    numbers = [numpy.zeros(3), numpy.zeros(0, dtype=object)]
    found = Arrays([sys._getframe()])
    assert not any(array is one for array, _ in found._held for one in numbers)
