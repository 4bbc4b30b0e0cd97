"""Work in a child process, so that a budget holds even inside one call of torch, and a crash of torch is an answer.

The child tells over a pipe what it is at and what it knows so far; when the time is over it is stopped, and what it
knew is the answer. Used where forking is safe: before torch, which has threads, is imported.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torchsan.errors import UsageError
from torchsan.model import Capture, Report
from torchsan.verify.timing import Clock

Tell = Callable[[str, Any], None]
Work = Callable[[Tell], Report]
STARTED = "eager"


def can_fork() -> bool:
    return hasattr(os, "fork") and "torch" not in sys.modules


def latest(budget: float) -> float:
    """How long the child may take once it has begun to compare."""
    return budget + max(20.0, budget / 2)


def in_child(work: Work, budget: float, bar: AbstractContextManager[Callable[[str], None] | None]) -> Report:
    """The report of `work`, or what was known of it when its time was over or it died.

    `bar` is entered after the fork: it may have a thread of its own.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(work, writing)
    os.close(writing)
    try:
        with bar as progress:
            return _Listener(reading, child, budget, progress or (lambda text: None)).listen()
    finally:
        os.close(reading)


def _work(work: Work, writing: int) -> None:
    """In the child: never returns."""

    def tell(kind: str, what: Any) -> None:
        data = pickle.dumps((kind, what))
        with contextlib.suppress(OSError), os.fdopen(os.dup(writing), "wb") as stream:
            stream.write(struct.pack("<q", len(data)) + data)

    try:
        try:
            tell("done", work(tell))
        except UsageError as error:
            tell("refused", str(error))
        except KeyboardInterrupt:
            os._exit(130)
        except BaseException as error:
            tell("broken", error if _travels(error) else RuntimeError(f"{type(error).__name__}: {error}"))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)


def _travels(error: BaseException) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


class _Listener:
    def __init__(self, reading: int, child: int, budget: float, progress: Callable[[str], None]) -> None:
        self.reading = reading
        self.child = child
        self.clock = Clock(child)
        self.budget = budget
        self.methods: list[str] = []
        self.progress = progress
        self.at = ""
        self.known = Report()
        self.deadline: float | None = None

    def listen(self) -> Report:
        try:
            while True:
                message = self._next()
                if message is None:
                    return self._cut_off()
                kind, what = message
                if kind == "done":
                    os.waitpid(self.child, 0)
                    report: Report = what
                    return report
                if kind == "refused":
                    raise UsageError(what)
                if kind == "broken":
                    raise what
                self._hear(kind, what)
        except BaseException:
            with contextlib.suppress(OSError):
                os.kill(self.child, signal.SIGKILL)
                os.waitpid(self.child, 0)
            raise

    def _hear(self, kind: str, what: Any) -> None:
        if kind == "at":
            self.at = what
            if what == STARTED:
                self.deadline = self.clock.now() + latest(self.budget)
            self.progress(what)
        elif kind == "methods":
            self.methods = what
        elif kind == "known":
            self.known = what

    def _next(self) -> tuple[str, Any] | None:
        head = self._read(8)
        data = self._read(struct.unpack("<q", head)[0]) if head is not None else None
        return pickle.loads(data) if data is not None else None

    def _read(self, size: int) -> bytes | None:
        """None when the child is gone or its time is over."""
        data = b""
        while len(data) < size:
            left = None if self.deadline is None else self.deadline - self.clock.now()
            ready, _, _ = select.select([self.reading], [], [], left and max(0.0, left))
            if not ready and left is not None and left > 0:
                # The child was made to wait: its own time is not over.
                continue
            part = os.read(self.reading, size - len(data)) if ready else b""
            if not part:
                return None
            data += part
        return data

    def _cut_off(self) -> Report:
        late = self.deadline is not None and self.clock.now() >= self.deadline
        with contextlib.suppress(OSError):
            os.kill(self.child, signal.SIGKILL)
        _, status = os.waitpid(self.child, 0)
        crashed = not late and os.WIFSIGNALED(status)
        if self.deadline is None:
            raise UsageError("the process that makes the model ended before there was a model")
        return self._told(f"signal {os.WTERMSIG(status)}" if crashed else "")

    def _told(self, crash: str) -> Report:
        """What was known, and of every other method that it was not tried to the end."""
        report = self.known
        done = {capture.method for capture in report.captures}
        for method in self.methods:
            if method in done:
                continue
            here = method == self.at
            if crash and here:
                report.captures.append(Capture(method, "failed", reason=f"torch itself crashed ({crash})"))
            else:
                why = "it was stopped inside a call of torch" if here and not crash else "it was not tried"
                report.captures.append(Capture(method, "unfinished", reason=f"not finished: {why}"))
        report.extra.setdefault("best", None)
        report.extra.setdefault("best_is_faithful", False)
        doing = {STARTED: "running the model", "causes": "looking for causes"}.get(self.at, f"at {self.at}")
        ended = f"torch crashed ({crash})" if crash else "the budget was over"
        report.notes.append(f"{ended} while {doing}: causes of what was found were not looked for")
        return report
