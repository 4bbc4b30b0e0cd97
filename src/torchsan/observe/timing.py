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

# To ask what the processor spent takes a call into the system, as long as a small op of torch's; the time on the wall
# is read for next to nothing.
FRESH = 0.0005
_asked = (-1.0, 0.0)


def processor_time() -> float:
    """What the process has spent of the processor, as it was half a millisecond ago at most."""
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
    """

    def __init__(
        self,
        allowance: float,
        share: float,
        started: float | None = None,
        hoard: float = float("inf"),
        at_most: float = float("inf"),
    ) -> None:
        self.hoard = hoard
        self.at_most = at_most
        self._first = allowance
        self.allowance = allowance
        self.share = share
        self.started = time.process_time() if started is None else started
        self.spent = 0.0
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
        grown = min(self.allowance + self.share * (now - self.started), self._first + self.at_most * now)
        lost = grown - self.spent - self.hoard
        if lost > 0:
            self.started += lost / self.share
            return grown - lost
        return grown

    def allows(self) -> bool:
        """Is there time for another look?"""
        return not self.taken() and self.spent <= self.granted()

    def spare(self) -> bool:
        """Time for a look that is welcome but not due: less than half of what there is has been used."""
        granted = self.granted()
        return not self.taken() and granted - self.spent >= 0.5 * min(granted, self.hoard)

    def earn(self, seconds: float) -> None:
        """More to begin with, for something new to look at."""
        self.allowance += seconds

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
