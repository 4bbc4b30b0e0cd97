"""Stopping what takes too long, on every platform and in every thread that runs Python.

Time is what the processor spent: on a busy machine a budget buys as much as on an idle one.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
import time
from collections.abc import Iterator


class OutOfTime(Exception):
    """A run took longer than it may."""


def ran_out(error: BaseException | None) -> bool:
    """Whether an error is, or was raised because of, a limit of ours."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, OutOfTime):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


WAITING = 8.0


class Clock:
    """Seconds that a process (this one unless told otherwise) has worked since the first look.

    Several threads at once count once. Who waits (for a disk, for other programs) works an eighth of the time: a
    budget must end for what sleeps, too.
    """

    def __init__(self, process: int | None = None) -> None:
        self._process = process
        self._worked = 0.0
        self._seen = self._look()

    def _look(self) -> tuple[float, float]:
        wall = time.monotonic()
        if self._process is None:
            return wall, time.process_time()
        try:
            # Linux's number for the clock of another process.
            return wall, time.clock_gettime((~self._process << 3) | 2)
        except (OSError, AttributeError, OverflowError):
            return wall, wall

    def now(self) -> float:
        (wall, worked), (old_wall, old_worked) = seen, _ = self._look(), self._seen
        self._seen = seen
        passed = wall - old_wall
        self._worked += max(min(passed, worked - old_worked), passed / WAITING)
        return self._worked


_clock = Clock()


def now() -> float:
    """The time by which budgets are kept: only differences mean something."""
    return _clock.now()


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Stop Python code that runs too long; one call into torch is let finish first.

    By an alarm in the main thread where the platform has one and the program does not use it; else by a second
    thread that raises in this one.
    """
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if usable and signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, signal.SIG_IGN, None):
        with _alarm(seconds):
            yield
    else:
        with watchdog(seconds):
            yield


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    clock = Clock()

    def stop(*_: object) -> None:
        left = seconds - clock.now()
        if left > 0.01:
            signal.setitimer(signal.ITIMER_REAL, left)
            return
        raise OutOfTime(f"no answer after {seconds:.0f} s")

    old = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


@contextlib.contextmanager
def watchdog(seconds: float) -> Iterator[None]:
    """A thread that raises `OutOfTime` in this one when the time is over."""
    target, lock, over, fired = threading.get_ident(), threading.Lock(), threading.Event(), threading.Event()

    clock = Clock()

    def watch() -> None:
        left = seconds
        while left > 0.01 or left == seconds:
            if over.wait(max(left, 0.01)):
                return
            left = seconds - clock.now()
        with lock:
            if not over.is_set():
                fired.set()
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(target), ctypes.py_object(OutOfTime))

    threading.Thread(target=watch, name="torchsan-watchdog", daemon=True).start()
    raised = False
    try:
        yield
    except OutOfTime:
        raised = True
        raise OutOfTime(f"no answer after {seconds:.0f} s") from None
    finally:
        with lock:
            # From here on nothing is asked for any more: what lies outside must not be hit.
            over.set()
        if fired.is_set() and not raised:
            _take()


def _take() -> None:
    """Let an exception come that was asked for and has not arrived: the interpreter raises it within a few steps."""
    with contextlib.suppress(OutOfTime):
        for _ in range(1_000):
            time.sleep(0)
