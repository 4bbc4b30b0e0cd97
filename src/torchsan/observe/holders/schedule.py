"""When to look for holders: at lines that are new, then ever more rarely, within a share of the process's time."""

from __future__ import annotations

from contextlib import AbstractContextManager

from torchsan.observe.timing import Share

# Looking has this share of the process's time, some seconds once for every process, and some for every line that it
# has not met before. However often a block is watched, a line is new but once.
SHARE, ALLOWANCE, FOR_A_LINE = 0.02, 0.1, 0.005

_time = Share(ALLOWANCE, SHARE, started=0.0)
_known: set[object] = set()


class Schedule:
    """The looks of one watched block."""

    def __init__(self) -> None:
        self._new: set[object] = set()
        self._visits: dict[object, int] = {}
        self._refused = _time.refused

    def allows(self, line: object) -> bool:
        """Is there time for a look at this line? One that an earlier block has looked at can wait."""
        if line not in _known:
            _known.add(line)
            self._new.add(line)
            _time.earn(FOR_A_LINE)
        return _time.allows() if line in self._new else _time.spare()

    def due(self, line: object) -> bool:
        """The same for what happens at every step of a program, of which the first times are looked at."""
        seen = self._visits.get(line, 0)
        self._visits[line] = seen + 1
        return self.allows(line) if seen < 4 or seen & (seen - 1) == 0 else _time.spare()

    def spare(self) -> bool:
        return _time.spare()

    def at_the_end(self) -> bool:
        return _time.allows() if self._new else _time.spare()

    def looking(self) -> AbstractContextManager[None]:
        return _time.spending()

    @property
    def remark(self) -> str:
        refused = _time.refused - self._refused
        if not refused:
            return ""
        return (
            f"looking for other holders of written memory used up its share of the time ({SHARE:.0%} of the run) and "
            f"was left out {refused} times: some aliases may not be told"
        )
