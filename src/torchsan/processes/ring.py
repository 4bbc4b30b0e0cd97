"""The collectives of a process, in a file that is memory: a record costs less than a microsecond and outlives a kill.

The file is a ring of rows of numbers; what a number stands for (an op with its shapes, a line, a name) is told once, in
the journal, before it is first used.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torchsan.processes.journal import Journal

SUFFIX = ".ring"
ROWS = 16_384
ROW = struct.Struct("<6I")  # group, number inside the group, call, line, names, state
CALLED, DONE = 1, 2
STATE = struct.Struct("<I")


class Ring:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._words: dict[Any, int] = {}
        self._next = 0
        self._memory: mmap.mmap | None = None
        with contextlib.suppress(OSError, ValueError):
            file = os.open(journal.path + SUFFIX, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.ftruncate(file, ROWS * ROW.size)
            self._memory = mmap.mmap(file, ROWS * ROW.size)
            os.close(file)

    def word(self, value: Any) -> int:
        """The number of a thing that can be written as JSON."""
        known = self._words.get(value)
        if known is None:
            known = self._words[value] = len(self._words) + 1
            self._journal.write("word", number=known, value=value)
        return known

    def called(self, group: int, number: int, call: int, line: int, names: int) -> int:
        """A collective begins; the place of its row is given back."""
        at = (self._next % ROWS) * ROW.size
        self._next += 1
        if self._memory is not None:
            ROW.pack_into(self._memory, at, group, number, call, line, names, CALLED)
        return at

    def done(self, at: int) -> None:
        if self._memory is not None:
            STATE.pack_into(self._memory, at + ROW.size - STATE.size, DONE)


@dataclass(slots=True)
class Call:
    """One collective of one rank."""

    number: int
    what: Any
    line: Any
    names: tuple[str, ...]
    done: bool


def read_ring(journal_path: str, words: dict[int, Any]) -> dict[str, list[Call]]:
    """The collectives of a process by group, in order."""
    try:
        with open(journal_path + SUFFIX, "rb") as file:
            data = file.read()
    except OSError:
        return {}
    found: dict[str, list[Call]] = {}
    for group, number, call, line, names, state in _rows(data):
        entry = Call(number, words.get(call), words.get(line), tuple(words.get(names) or ()), state == DONE)
        found.setdefault(str(words.get(group, "")), []).append(entry)
    for calls in found.values():
        calls.sort(key=lambda entry: entry.number)
    return found


def _rows(data: bytes) -> Iterator[tuple[int, ...]]:
    for at in range(0, len(data) - ROW.size + 1, ROW.size):
        row = ROW.unpack_from(data, at)
        if row[5]:
            yield row
