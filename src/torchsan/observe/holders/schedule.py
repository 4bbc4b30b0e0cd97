"""When to look for holders: at lines that are new, then ever more rarely, within a share of the process's time."""

from __future__ import annotations

from contextlib import AbstractContextManager

from torchsan.observe.timing import Share

# All looks together have this share of the process's time, and after some seconds a smaller one: what a long run does,
# it has done before. Lines that it has not met before have time of their own besides, some once for every process and
# some for every such line. However often a block is watched, a line is new but once. Of a program that is all new
# lines, as a suite of tests is, their time is a share as well.
SHARE, ALLOWANCE, FOR_A_LINE = 0.02, 0.4, 0.02
EARLY, LATER_SHARE = 10.0, 0.004
FOR_ALL_LINES = 0.04
HOARD = 0.01

_share = Share(0.0, SHARE, hoard=HOARD, early=EARLY, later=LATER_SHARE)
# It is earned while something is watched: a block does not begin with what the program did before.
_share.rest()
_blocks = 0
_first_looks = Share(ALLOWANCE, 0.0, at_most=FOR_ALL_LINES)
# To note what a line does to bytes that it has not met before takes far less than a look.
_notes = Share(0.05, SHARE / 2, early=EARLY, later=LATER_SHARE / 2)
_known: set[object] = set()


def _taken() -> bool:
    return _share.taken() or _first_looks.taken()


class Schedule:
    """The looks of one watched block."""

    def __init__(self) -> None:
        self._new: set[object] = set()
        self._visits: dict[object, int] = {}
        self._refused = 0
        self._payer = _share
        self._open = False

    def begin(self) -> None:
        """A watched block begins."""
        global _blocks
        self._open, _blocks = True, _blocks + 1
        _share.resume()

    def end(self) -> None:
        global _blocks
        if self._open:
            self._open, _blocks = False, _blocks - 1
            if not _blocks:
                _share.rest()

    def allows(self, line: object, *, due: bool = True) -> bool:
        """Is there time for a look at this line? One that an earlier block has looked at can wait.

        `due`: it may take all the time there is, and to leave it out is worth a remark.
        """
        if line not in _known:
            _known.add(line)
            self._new.add(line)
            _first_looks.earn(FOR_A_LINE)
        return self._first(due) if line in self._new else self.spare()

    def due(self, line: object) -> bool:
        """The same for what happens at every step of a program, of which the first times are looked at."""
        seen = self._visits.get(line, 0)
        self._visits[line] = seen + 1
        return self.allows(line) if seen < 4 or seen & (seen - 1) == 0 else self.spare()

    def spare(self) -> bool:
        self._payer = _share
        return _share.spare() and not _taken()

    def notes(self) -> bool:
        """Is there time to note what a line that is followed does, without a look around?"""
        self._payer = _notes
        return _notes.allows() and not _taken()

    def at_the_end(self) -> bool:
        return self._first(True) if self._new else self.spare()

    def looking(self) -> AbstractContextManager[None]:
        return self._payer.spending()

    def _first(self, due: bool) -> bool:
        if _taken():
            return False
        for self._payer in (_first_looks, _share):
            if self._payer.allows() if due else self._payer.spare():
                return True
        self._refused += due
        return False

    @property
    def remark(self) -> str:
        if not self._refused:
            return ""
        return (
            f"looking for other holders of written memory used up its share of the time ({SHARE:.0%} of the run) and "
            f"was left out {self._refused} times: some aliases may not be told"
        )
