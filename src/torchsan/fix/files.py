"""Which files are the user's to edit, and writing them: atomic, same mode, only if nobody else wrote meanwhile."""

from __future__ import annotations

import os
import sysconfig
import tempfile
from collections.abc import Iterable

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
    for before, after in pairs:
        _replace(before.path, after.raw)


def _current(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _replace(path: str, content: bytes) -> None:
    mode = os.stat(path).st_mode
    handle, scratch = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".torchsan-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(scratch, mode & 0o7777)
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise
