"""One order of events for all threads.

Torch numbers autograd nodes in each thread for itself, so numbers of two threads cannot be compared. The numbers of the
thread that began to watch stay as torch gives them, for that costs nothing; as soon as another thread takes part, every
number carries the moment at which it was taken, and numbers of different threads are compared by that.
"""

from __future__ import annotations

import itertools
from _thread import get_ident
from collections.abc import Callable
from typing import Any

from torchsan import compat

_moments = itertools.count(1)
UNKNOWN, LATEST = -1, 1 << 62


class Stamp(int):
    """The number that the next node of a thread will have, and when that was."""

    thread: int
    moment: int

    def __new__(cls, number: int, thread: int, moment: int) -> Stamp:
        stamp = super().__new__(cls, number)
        stamp.thread, stamp.moment = thread, moment
        return stamp

    def _side(self, other: int) -> int:
        """Below zero where this came before the other, above zero where it came after."""
        if isinstance(other, Stamp):
            if other.thread != self.thread:
                return self.moment - other.moment
        elif self.thread != clock.home:
            return 1  # a plain number is from the time before this thread took part
        return int(self) - int(other)

    def __lt__(self, other: int) -> bool:
        return self._side(other) < 0

    def __le__(self, other: int) -> bool:
        return self._side(other) <= 0

    def __gt__(self, other: int) -> bool:
        return self._side(other) > 0

    def __ge__(self, other: int) -> bool:
        return self._side(other) >= 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and self._side(other) == 0

    def __hash__(self) -> int:
        return hash(int(self))

    def __sub__(self, number: int) -> Stamp:
        return Stamp(int(self) - number, self.thread, self.moment)


class Clock:
    """`now()` is what every sensor uses for the time of an event."""

    def __init__(self) -> None:
        self.home = get_ident()
        self.threaded = False
        # Counts moments; the native part, which notes writes by itself, brings its own while it serves.
        self.next_moment: Callable[[], int] = _moments.__next__
        self._users = 0
        self._listeners: list[Callable[[], None]] = []

    def start(self) -> None:
        """A recorder begins: its thread is the one whose numbers stay plain."""
        self._users += 1
        if self._users == 1:
            self.home, self.threaded = get_ident(), False

    def stop(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._listeners.clear()

    def when_threaded(self, listener: Callable[[], None]) -> None:
        """Call once a second thread has taken part."""
        self._listeners.append(listener)

    def now(self) -> int:
        if self.threaded or get_ident() != self.home:
            return self.stamp()
        return compat.thread_sequence()

    def stamp(self, number: int | None = None) -> Stamp:
        """A number of this thread with its moment; from the first one on all threads take part."""
        if not self.threaded:
            self.threaded = True
            for listener in self._listeners:
                listener()
        return Stamp(compat.thread_sequence() if number is None else number, get_ident(), self.next_moment())

    def of_node(self, number: int, metadata: Any) -> int:
        """When a node was made: its own number, and the moment that its metadata holds if threads take part.

        A node without metadata was made while nobody looked: as far as we know, after everything else.
        """
        if not metadata:
            return Stamp(number, UNKNOWN, LATEST)
        stamp = getattr(metadata, "stamp", None)
        return Stamp(number, stamp.thread, stamp.moment) if stamp is not None else number

    def of_write(self, number: int, thread: int, moment: int) -> int:
        """When a write was made that the native part noted."""
        return Stamp(number, thread, moment) if self.threaded or thread != self.home else number


clock = Clock()
now = clock.now
