"""For how long processes have done nothing: what hangs is told from what is slow, however busy the machine is."""

from __future__ import annotations

import time
from pathlib import Path

# A look that comes late says nothing about the time since the last one.
LONGEST_LOOK = 0.1
# A process that wakes now and then to see whether it has work is resting; one that works is met more often than that.
WEIGHT_OF_WORK = 10
TOLD = Path("/proc/self/task").exists()
WEIGHT_OF_REST = 1.0 if TOLD else 0.05


class Rest:
    """Seconds of rest of some processes and all that they started.

    Time counts where the first thread of each is asleep; one that waits for a processor is not. Other threads may be
    those of a backend, which never sleep for long. Where the system does not tell (no /proc), all time counts, but little.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._looked = time.monotonic()

    def look(self, pids: list[int]) -> float:
        now = time.monotonic()
        passed = min(now - self._looked, LONGEST_LOOK)
        self._looked = now
        if any(_works(pid) for pid in pids):
            self._seconds = max(0.0, self._seconds - WEIGHT_OF_WORK * passed)
        else:
            self._seconds += WEIGHT_OF_REST * passed
        return self._seconds


def _works(pid: int) -> bool:
    process = Path(f"/proc/{pid}")
    try:
        # The name before the state is the program's own and may hold anything.
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        started = [child for thread in (process / "task").iterdir() for child in _children(thread)]
    except OSError:
        return False
    return state in "RD" or any(_works(child) for child in started)


def _children(thread: Path) -> list[int]:
    try:
        return [int(pid) for pid in (thread / "children").read_text().split()]
    except OSError:  # the thread has ended meanwhile
        return []
