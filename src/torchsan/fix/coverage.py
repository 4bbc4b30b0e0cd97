"""Which parts of the user's code a run came to, by the places of the instructions that it executed."""

from __future__ import annotations

import dis
import sys
import threading
from types import CodeType, FrameType
from typing import Any

from torchsan.fix.trial import Ran
from torchsan.model.source import real_path
from torchsan.observe.sites import USER, kind_of

# Instructions of one function that are followed one by one; after that only its lines are.
MOST_FOLLOWED = 50_000


class _Seen:
    """One code object: what of it has run, and what has run twice within one call: in another turn of a loop."""

    __slots__ = ("again", "followed", "offsets", "whole")

    def __init__(self, code: CodeType) -> None:
        self.followed = 0
        self.offsets: set[int] = set()
        self.again: set[int] = set()
        self.whole = sum(1 for _ in dis.get_instructions(code))


class Coverage:
    """A trace function while the program runs; the one that was set before comes back afterwards."""

    def __init__(self) -> None:
        self._seen: dict[CodeType, _Seen] = {}
        self._before: Any = None
        self._monitor: _Monitor | None = None

    def start(self) -> None:
        self._monitor = _Monitor.started(self._seen)
        if self._monitor is None:
            self._before = sys.gettrace()
            threading.settrace(self._called)
            sys.settrace(self._called)

    def stop(self) -> None:
        if self._monitor is not None:
            self._monitor.stop()
        else:
            threading.settrace(None)
            sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if kind_of(code) != USER:
            return None
        seen = self._seen.get(code)
        if seen is None:
            seen = self._seen[code] = _Seen(code)
        if len(seen.again) >= seen.whole:
            return None
        frame.f_trace_opcodes = seen.followed < MOST_FOLLOWED
        return _in_frame(seen)

    def found(self) -> tuple[Ran, Ran]:
        """What was executed, and what was executed again in another turn of a loop."""
        ran: Ran = {}
        again: Ran = {}
        for code, seen in self._seen.items():
            path = real_path(code.co_filename)
            for number, (line, end_line, column, end_column) in enumerate(code.co_positions()):
                if line is None or end_line is None:
                    continue
                place = (line, column or 0, end_line, end_column or 0)
                for places, offsets in ((ran, seen.offsets), (again, seen.again)):
                    if 2 * number in offsets:
                        places.setdefault(path, set()).add(place)
        return ran, again


def _in_frame(seen: _Seen) -> Any:
    """The trace function of one call."""
    here: set[int] = set()

    def stepped(frame: FrameType, event: str, arg: Any) -> Any:
        if event in ("opcode", "line"):
            offset = frame.f_lasti
            if event == "opcode" and offset in here:
                seen.again.add(offset)
            elif event == "opcode":
                here.add(offset)
            seen.offsets.add(offset)
            seen.followed += 1
            if seen.followed == MOST_FOLLOWED:
                frame.f_trace_opcodes = False
        return stepped

    return stepped


class _Monitor:
    """The same by `sys.monitoring`: from Python 3.12 on a trace function is told of no instructions of code that it
    learns of as it is called."""

    def __init__(self, seen: dict[CodeType, _Seen], ears: Any, tool: int) -> None:
        self._seen = seen
        self._ears = ears
        self._tool = tool
        # By the address of a frame: what it has executed since it was called.
        self._here: dict[int, set[int]] = {}

    @classmethod
    def started(cls, seen: dict[CodeType, _Seen]) -> _Monitor | None:
        """None where there is no such thing, and where others have all of it."""
        ears: Any = getattr(sys, "monitoring", None)
        free = [number for number in (4, 3, 5, 1, 2, 0) if ears is not None and ears.get_tool(number) is None]
        if not free:
            return None
        monitor, tool, events = cls(seen, ears, free[0]), free[0], ears.events
        ears.use_tool_id(tool, "torchsan")
        ears.register_callback(tool, events.PY_START, monitor._called)
        ears.register_callback(tool, events.INSTRUCTION, monitor._instruction)
        ears.register_callback(tool, events.LINE, monitor._line)
        ears.set_events(tool, events.PY_START)
        return monitor

    def stop(self) -> None:
        self._ears.set_events(self._tool, 0)
        for code in self._seen:
            self._ears.set_local_events(self._tool, code, 0)
        self._ears.free_tool_id(self._tool)

    def _called(self, code: CodeType, _offset: int) -> Any:
        if kind_of(code) != USER:
            return self._ears.DISABLE
        if code not in self._seen:
            self._seen[code] = _Seen(code)
            self._ears.set_local_events(self._tool, code, self._ears.events.INSTRUCTION)
        self._here[id(sys._getframe(1))] = set()
        return None

    def _instruction(self, code: CodeType, offset: int) -> None:
        seen = self._seen.get(code)
        if seen is None:
            return
        here = self._here.setdefault(id(sys._getframe(1)), set())
        (seen.again if offset in here else here).add(offset)
        seen.offsets.add(offset)
        seen.followed += 1
        if len(seen.again) >= seen.whole:
            self._ears.set_local_events(self._tool, code, 0)
        elif seen.followed == MOST_FOLLOWED:
            self._ears.set_local_events(self._tool, code, self._ears.events.LINE)

    def _line(self, code: CodeType, _line: int) -> None:
        seen = self._seen.get(code)
        if seen is not None:
            seen.offsets.add(sys._getframe(1).f_lasti)
