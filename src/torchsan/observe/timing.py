"""A share of the run's time for work that is worth having but must not slow the program down.

Time is what the processor spent: a busy machine makes looking slower, and the program as well.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

# To ask what the processor spent takes a call into the system: as long as a small op of torch's, and on a busy machine
# it is there that others get their turn. The time on the wall is read for next to nothing.
FRESH = 0.005
_asked = (-1.0, 0.0)


def processor_time() -> float:
    """What the process has spent of the processor, as it was a few milliseconds ago at most."""
    global _asked
    wall = perf_counter()
    if wall - _asked[0] > FRESH:
        _asked = (wall, time.process_time())
    return _asked[1]


class Share:
    """Some seconds to begin with, and a share of the time beyond them.

    `started`: the processor time at which counting begins; 0 counts from the start of the process.
    `hoard`: what may be saved up at most: after hours without a look there are no seconds full of them.
    `at_most`: of what is earned later, no more than this share of the process's time can be spent.
    `early`, `later`: the share falls to `later` once so many seconds were counted: what a long run has not shown by
    then it shows again.
    """

    def __init__(
        self,
        allowance: float,
        share: float,
        started: float | None = None,
        hoard: float = float("inf"),
        at_most: float = float("inf"),
        early: float = float("inf"),
        later: float = 0.0,
    ) -> None:
        self.hoard = hoard
        self.at_most = at_most
        self._first = allowance
        self.allowance = allowance
        self.share = share
        self.early = early
        self.later = later
        self.started = time.process_time() if started is None else started
        self.spent = 0.0
        self._lost = 0.0
        # On the wall: until when there can be nothing to spend, and nothing to spare.
        self._broke = self._scarce = 0.0
        self._spender: int | None = None
        self._rested: float | None = None

    def rest(self) -> None:
        """Nothing is earned until `resume`."""
        self._rested = processor_time()

    def resume(self) -> None:
        if self._rested is not None:
            self.started += processor_time() - self._rested
            self._rested = None

    def granted(self) -> float:
        """The seconds that there are by now, spent or not."""
        now = processor_time()
        seconds = now - self.started
        earned = self.share * min(seconds, self.early) + self.later * max(0.0, seconds - self.early)
        grown = min(self.allowance + earned - self._lost, self._first + self.at_most * now)
        lost = grown - self.spent - self.hoard
        if lost > 0:
            self._lost += lost
            return grown - lost
        return grown

    def allows(self) -> bool:
        """Is there time for another look?"""
        if perf_counter() < self._broke:
            return False
        lacking = self.spent - self.granted()
        if lacking > 0:
            self._broke = self._earned_by(lacking)
        return lacking <= 0 and not self.taken()

    def spare(self) -> bool:
        """Time for a look that is welcome but not due: less than half of what there is has been used."""
        if perf_counter() < self._scarce:
            return False
        granted = self.granted()
        lacking = 0.5 * min(granted, self.hoard) - (granted - self.spent)
        if lacking > 0:
            self._scarce = self._earned_by(lacking)
        return not lacking > 0 and not self.taken()

    def _earned_by(self, seconds: float) -> float:
        """When so much will have been earned at the soonest, if one thread computes; with more it may be sooner."""
        return perf_counter() + seconds / self.share if self.share else 0.0

    def earn(self, seconds: float) -> None:
        """More to begin with, for something new to look at."""
        self.allowance += seconds
        self._broke = self._scarce = 0.0

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Charge what happens inside."""
        start = time.thread_time()  # what others do meanwhile is not our doing
        me = threading.get_ident()
        within = self._spender == me
        if not within:
            self._spender = me
        try:
            yield
        finally:
            if not within:
                self._spender = None
                self.spent += time.thread_time() - start

    def taken(self) -> bool:
        """Another thread is looking; nobody waits for it."""
        spender = self._spender
        if spender is None or spender == threading.get_ident():
            return False
        return spender in sys._current_frames()  # threads end, and a fork leaves them behind
