"""Which files are the user's to edit, and writing them: atomic, same mode, only if nobody else wrote meanwhile."""

from __future__ import annotations

import os
import signal
import sysconfig
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torchsan.errors import UsageError
from torchsan.fix.source import Source

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INSTALLED = tuple(
    os.path.realpath(sysconfig.get_paths()[key]) + os.sep for key in ("purelib", "platlib", "stdlib", "platstdlib")
)


def is_users(path: str) -> bool:
    """Neither ours nor installed: a fix never edits a library."""
    packaged = "site-packages" in path or "dist-packages" in path
    return not packaged and not path.startswith((_OURS, *_INSTALLED))


def write(changes: Iterable[tuple[Source, Source]]) -> None:
    """Write every changed file, or none when one of them is not what was read."""
    pairs = list(changes)
    for before, _ in pairs:
        if _current(before.path) != before.raw:
            raise UsageError(f"{before.path} changed while torchsan was at work; nothing was written")
        if not os.access(before.path, os.W_OK):
            raise UsageError(f"{before.path} cannot be written; nothing was written")
    ready: list[tuple[str, str]] = []
    try:
        for before, after in pairs:
            ready.append((_prepared(before.path, after.raw), before.path))
        with _uninterrupted():
            while ready:
                os.replace(*ready[0])
                ready.pop(0)
    finally:
        for scratch, _ in ready:
            os.unlink(scratch)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until all files are in place: some with the edits and some without would be worse than either."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed:
            signal.raise_signal(signal.SIGINT)


def _current(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _prepared(path: str, content: bytes) -> str:
    """A file beside the old one, with its mode, that only needs its name."""
    mode = os.stat(path).st_mode
    handle, scratch = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".torchsan-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(scratch, mode & 0o7777)
    except BaseException:
        os.unlink(scratch)
        raise
    return scratch
