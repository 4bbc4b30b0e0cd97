"""Which way a branch went: after every conditional jump on given lines, the instruction that came next."""

from __future__ import annotations

import contextlib
import dis
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from torchsan.model.source import shown_path

Line = tuple[str, int]
Turn = tuple[CodeType, int, int]
# A loop over pixels need not be followed to its end.
MOST_STEPS = 200_000


class Turns:
    """What was seen, by line."""

    def __init__(self, lines: set[Line]) -> None:
        self.lines = lines
        self.taken: dict[Line, set[Turn]] = {}
        self._left = MOST_STEPS

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        jumps = _jumps(frame.f_code)
        path = shown_path(frame.f_code.co_filename) if jumps else ""
        watched = {at: (path, line) for at, line in jumps.items() if (path, line) in self.lines}
        if not watched or self._left <= 0:
            return None
        frame.f_trace_opcodes = True
        return self._in_frame(watched)

    def _in_frame(self, watched: dict[int, Line]) -> Any:
        before = -1

        def stepped(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal before
            if event == "opcode":
                if before in watched:
                    self.taken.setdefault(watched[before], set()).add((frame.f_code, before, frame.f_lasti))
                before = frame.f_lasti
                self._left -= 1
                frame.f_trace_opcodes = self._left > 0
            return stepped

        return stepped


@lru_cache(maxsize=1024)
def _jumps(code: CodeType) -> dict[int, int]:
    """The conditional jumps of a function, and their lines."""
    lines = [position[0] for position in code.co_positions()]
    jumps = (i.offset for i in dis.get_instructions(code) if "JUMP" in i.opname and "_IF_" in i.opname)
    return {at: line for at in jumps if (line := lines[at // 2]) is not None}


@contextlib.contextmanager
def turns_at(lines: set[Line]) -> Iterator[Turns]:
    turns, old = Turns(lines), sys.gettrace()
    sys.settrace(turns._called)
    try:
        yield turns
    finally:
        sys.settrace(old)


def turned(lines: set[Line], first: Turns, other: Turns) -> set[Line]:
    """The lines at which the second run took a way that the first one did not take."""
    return {line for line in lines if other.taken.get(line, set()) - first.taken.get(line, set())}
