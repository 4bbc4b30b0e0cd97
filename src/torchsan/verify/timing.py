"""Stopping what takes too long, on every platform and in every thread that runs Python."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
from collections.abc import Iterator


class OutOfTime(Exception):
    """A run took longer than it may."""


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
    def stop(*_: object) -> None:
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
    target, lock, over = threading.get_ident(), threading.Lock(), threading.Event()

    def watch() -> None:
        if over.wait(max(seconds, 0.01)):
            return
        with lock:
            if not over.is_set():
                _raise_in(target, OutOfTime)

    thread = threading.Thread(target=watch, name="torchsan-watchdog", daemon=True)
    thread.start()
    try:
        yield
    except OutOfTime:
        raise OutOfTime(f"no answer after {seconds:.0f} s") from None
    finally:
        with lock:
            # From here on nothing is raised any more: what lies outside must not be hit.
            over.set()
            _raise_in(target, None)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Ask the interpreter to raise in a thread at its next step; None takes back what was asked."""
    what = ctypes.py_object(error) if error is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)
