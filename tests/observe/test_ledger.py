"""The log of writes: bounded, ordered, and honest about what it does not know."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from torchsan.observe.ledger import MAX_MEMORIES, MAX_WRITES_PER_MEMORY, SILENT_LIFE, Ledger, Written
from torchsan.observe.sites import site_of

SITE = site_of(sys._getframe())
OTHER = site_of(sys._getframe())


def write(before: int, version: int, site=SITE) -> Written:
    return Written(before, site, "add_", version, "op")


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), max_size=300))
def test_after_returns_only_later_writes_in_order(entries):
    ledger = Ledger()
    versions: dict[int, int] = {}
    for memory, before in sorted(entries, key=lambda e: e[1]):
        versions[memory] = versions.get(memory, 0) + 1
        ledger.add(memory, write(before, versions[memory]))
    for memory in versions:
        found = ledger.after(memory, 20, None)
        assert all(w.before > 20 for w in found)
        assert [w.version for w in found] == sorted(w.version for w in found)


def test_it_does_not_grow_without_end():
    ledger = Ledger()
    for memory in range(MAX_MEMORIES * 3):
        ledger.add(memory, write(memory, 1))
    for version in range(MAX_WRITES_PER_MEMORY * 3):
        ledger.add(7, write(version, version))
    assert len(ledger.writes) <= MAX_MEMORIES
    assert len(ledger.writes[7]) <= MAX_WRITES_PER_MEMORY


def test_silent_writes_are_forgotten_after_a_while():
    ledger = Ledger()
    ledger.add_silent(1, write(1, 0))
    assert ledger.suspicious()
    for _ in range(SILENT_LIFE):
        ledger.finish_backward()
    assert not ledger.suspicious()


def test_versions_alone_decide_only_when_one_line_fits():
    ledger = Ledger()
    ledger.add(1, write(5, 1))
    ledger.add(1, write(6, 2))
    assert [w.version for w in ledger.by_versions(2, 0, 2)] == [1, 2]
    ledger.add(2, write(5, 1, OTHER))
    ledger.add(2, write(6, 2, OTHER))
    assert ledger.by_versions(2, 0, 2) == []
