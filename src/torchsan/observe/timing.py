"""A share of the run's time for work that is worth having but must not slow the program down.

Time is what the processor spent: a busy machine makes looking slower, and the program as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Share:
    """Some seconds for every run, however short, and a share of its time beyond them."""

    def __init__(self, allowance: float, share: float) -> None:
        self.allowance = allowance
        self.share = share
        self.started = time.process_time()
        self.spent = 0.0

    def allows(self) -> bool:
        return self.spent <= self.allowance + self.share * (time.process_time() - self.started)

    @contextmanager
    def spending(self) -> Iterator[None]:
        start = time.process_time()
        try:
            yield
        finally:
            self.spent += time.process_time() - start
