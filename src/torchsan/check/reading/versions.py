"""Syntax that a newer Python has brought, told by the line at which an older one stops."""

from __future__ import annotations

import re
import sys

_NEW = (
    (re.compile(r"^\s*(?:class|(?:async )?def)\s+\w+\s*\["), (3, 12)),
    (re.compile(r"^\s*type\s+\w+\s*(?:\[.*\])?\s*="), (3, 12)),
    (re.compile(r"^\s*except\s*\*"), (3, 11)),
    (re.compile(r"^\s*except\s+[\w.]+\s*,\s*[\w.]+.*:"), (3, 14)),
    (re.compile(r"(?<![\w\"'])t[\"']"), (3, 14)),
    (re.compile(r"^\s*match\b.*:\s*$"), (3, 10)),
)


def not_readable(message: str, line: str, running: tuple[int, int] | None = None) -> str:
    """What is wrong with a line, and which Python says so: another one may read it."""
    here = running or sys.version_info[:2]
    shown = ".".join(map(str, here))
    newer = next((version for pattern, version in _NEW if version > here and pattern.search(line)), None)
    if newer is not None:
        needed = ".".join(map(str, newer))
        return (
            f"{message} for Python {shown}, with which torchsan runs; it looks like Python {needed}: run torchsan there"
        )
    return f"{message} for Python {shown}" if message == "invalid syntax" else message
