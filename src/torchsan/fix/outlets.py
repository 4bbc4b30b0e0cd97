"""What leaves a program besides standard output: files that it writes, standard error, log records."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

from torchsan.fix.trial import Value
from torchsan.observe.patches import Patches
from torchsan.observe.sites import USER, kind_of

MOST_FILES = 200
MOST_BYTES = 5_000_000
_WRITING = os.O_WRONLY | os.O_RDWR
# An audit hook stays for as long as the process: it tells whoever listens now.
_listening: list[Outlets] = []
_hooked = False


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and _listening:
        path, _, flags = args
        if isinstance(path, (str, bytes)) and isinstance(flags, int) and flags & _WRITING:
            _listening[-1].opened(os.fsdecode(path))


class Outlets:
    """Listens while the program runs."""

    def __init__(self) -> None:
        self._files: dict[str, None] = {}
        self._errors: Any = None
        self._lines: list[str] = []
        self._patches = Patches()

    def start(self) -> None:
        global _hooked
        if not _hooked:
            sys.addaudithook(_audit)
            _hooked = True
        _listening.append(self)
        self._errors, sys.stderr = sys.stderr, _Errors(sys.stderr, self._lines)
        original = logging.Logger.handle

        def handle(logger: logging.Logger, record: logging.LogRecord) -> None:
            if not logger.name.startswith("torch"):
                self._lines.append(f"{record.levelname} {record.getMessage()}\n")
            original(logger, record)

        self._patches.set(logging.Logger, "handle", handle)

    def stop(self) -> None:
        self._patches.remove()
        if isinstance(sys.stderr, _Errors):
            sys.stderr = self._errors
        if self in _listening:
            _listening.remove(self)

    def opened(self, path: str) -> None:
        if len(self._files) < MOST_FILES and not path.startswith(("/dev/", "/proc/")) and not path.endswith(".pyc"):
            self._files.setdefault(os.path.abspath(path))

    def found(self) -> Iterator[Value]:
        if self._lines:
            yield Value("text", "standard error and log", "".join(self._lines))
        for number, path in enumerate(self._files):
            content = _content(path)
            if content is not None:
                # By its number and kind: names of temporary files change from run to run.
                yield Value("text", f"file {number}{os.path.splitext(path)[1]}", content)


class _Errors:
    """Stands for standard error, and keeps what the program itself prints there."""

    def __init__(self, original: Any, lines: list[str]) -> None:
        self._original = original
        self._lines = lines

    def write(self, text: str) -> int:
        if kind_of(sys._getframe(1).f_code) == USER:
            self._lines.append(text)
        return int(self._original.write(text) or 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _content(path: str) -> str | None:
    """Text as it is, so that numbers can be compared; of anything else only whether it is the same."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > MOST_BYTES:
            return None
        with open(path, "rb") as file:
            raw = file.read()
    except OSError:
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return hashlib.sha256(raw).hexdigest()
    return text if "\0" not in text else hashlib.sha256(raw).hexdigest()
