"""Source text by path, and paths as people write them."""

from __future__ import annotations

import linecache
import os

# Programs may change directory while they run; paths are told from where they were started.
START = os.getcwd()


def shown_path(path: str) -> str:
    """The path as a report shows it: relative when it lies below the starting directory."""
    if path.startswith("<"):
        return path
    full = os.path.normpath(os.path.join(START, path))
    below = os.path.normcase(full).startswith(os.path.normcase(START + os.sep))
    shown = os.path.relpath(full, START) if below else full
    # Reports travel between systems: forward slashes are understood on all of them.
    return shown.replace(os.sep, "/")


def real_path(path: str) -> str:
    """The inverse of `shown_path`."""
    return path if path.startswith("<") else os.path.join(START, path)


def source_line(path: str, line: int) -> str:
    """One line of a file (or notebook cell), without its end; empty when there is none."""
    return linecache.getline(real_path(path), line).rstrip("\r\n")


def source_lines(path: str) -> list[str]:
    return linecache.getlines(real_path(path))
