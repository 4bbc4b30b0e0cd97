"""Looking for holders takes a share of the run's time and no more; when it is used up, the report says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

# Seconds that every run has, however short, and the share of its time that it has beyond.
ALLOWANCE, SHARE = 0.6, 0.02


class Budget:
    def __init__(self) -> None:
        self.started = time.process_time()
        self.spent = 0.0
        self.refused = 0
        self._depth = 0
        self._looker: int | None = None

    def allows(self) -> bool:
        """Is there time for another look? A refusal is counted."""
        if self._looker not in (None, threading.get_ident()):
            return False  # another thread is looking; nobody waits for it
        if self.spent <= ALLOWANCE + SHARE * (time.process_time() - self.started):
            return True
        self.refused += 1
        return False

    def spare(self) -> bool:
        """Time for a look that is welcome but not due: less than half of what there is has been used."""
        if self._looker not in (None, threading.get_ident()):
            return False
        return self.spent <= 0.5 * (ALLOWANCE + SHARE * (time.process_time() - self.started))

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Charge what happens inside."""
        start = time.thread_time()  # what others do meanwhile is not our doing
        self._depth += 1
        self._looker = threading.get_ident()
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._looker = None
                self.spent += time.thread_time() - start

    @property
    def remark(self) -> str:
        if not self.refused:
            return ""
        return (
            f"looking for other holders of written memory used up its share of the time ({SHARE:.0%} of the run) and "
            f"was left out {self.refused} times: some aliases may not be told"
        )
