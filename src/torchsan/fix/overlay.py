"""Edited sources in the place of the files, for this process only: imports, the script and tracebacks see them."""

from __future__ import annotations

import linecache
import os
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any


def install(files: dict[str, bytes]) -> None:
    """Make every later import of these paths (real paths) use the given contents."""
    for path, content in files.items():
        show(path, content)
    original = SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> CodeType | None:
        content = files.get(os.path.realpath(self.path))
        if content is None:
            return original(self, fullname)
        show(os.path.abspath(self.path), content)
        # Never by way of the cache of compiled files: nothing of a trial may stay behind.
        return compile(content, self.path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def show(path: str, content: bytes) -> None:
    """What tracebacks, `inspect` and our own places read; no modification time, so it is never refreshed."""
    from torchsan.fix.source import Source

    linecache.cache[path] = (len(content), None, Source(path, content).lines, path)
