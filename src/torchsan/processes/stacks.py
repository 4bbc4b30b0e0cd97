"""Where a process stood when it was told to end, from the stacks that C code wrote."""

from __future__ import annotations

import os
import re
import sysconfig

from torchsan.model import Place
from torchsan.model.source import shown_path
from torchsan.processes.journal import STACKS

_FRAME = re.compile(r'^  File "(?P<path>.+)", line (?P<line>\d+) in (?P<function>.+)$')
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def stood_at(journal_path: str, command: list[str]) -> Place | None:
    """The innermost line of the program's own; None when the process was not told to end, or stood in no such line."""
    try:
        with open(journal_path + STACKS, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    libraries = (*(sysconfig.get_paths()[key] + os.sep for key in ("stdlib", "purelib", "platlib")), _OURS, "<")
    # The thread that took the signal comes last and is the main one.
    threads = text.split("\n\n")
    for thread in sorted(threads, key=lambda part: "Current thread" not in part):
        for line in thread.splitlines():
            match = _FRAME.match(line)
            if match and not match["path"].startswith(libraries) and "site-packages" not in match["path"]:
                return Place(shown_path(match["path"]), int(match["line"]), function=match["function"])
    return None
