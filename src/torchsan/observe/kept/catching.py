"""The line that puts something into a holder, caught in the act.

For the length of one step the interpreter tells which line of the program's is next; where the holder has changed since
the line before, that line did it. Names and syntax play no part, so `heappush(self.worst, …)`, a hook that is
registered or a record that a logger keeps are caught like `losses.append(…)`. Done for holders that are suspected, not
while a debugger or coverage has the interpreter's ear, and in the thread that makes the steps.
"""

from __future__ import annotations

import ast
import gc
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any

from torchsan import compat, compat_compile
from torchsan.model import Place
from torchsan.model.source import shown_path
from torchsan.observe import expressions as syntax
from torchsan.observe.kept.saved import reachable
from torchsan.observe.names import local_names
from torchsan.observe.objects import is_tensor
from torchsan.observe.sites import USER, kind_of, user_frames

MAX_EVENTS = 200_000
# Before Python 3.13 the variables of a traced frame are copied into a dictionary, and back.
SNAPSHOTS = sys.version_info < (3, 13)
SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Delete)
# What we hold of a holder while we wait for it to change: our attribute, and the argument of the question.
OWN_REFERENCES = 2


class Catcher:
    """Watches one holder from one step to the next."""

    def __init__(self, holder: Any, look: Callable[[Any], list[int]], variable: tuple[int, str] | None = None) -> None:
        self._holder: Any = holder
        self._look = look
        # A variable of a function that runs is asked for when its frame is at hand.
        self._variable = variable
        self._known: list[int] | None = look(holder) if variable is None else None
        self._last: tuple[CodeType, int] | None = None
        self._events = 0
        self._active = False
        self.started = False
        self.lines: Counter[tuple[CodeType, int]] = Counter()
        self._idle: Counter[tuple[CodeType, int]] = Counter()

    def start(self, frame: FrameType | None) -> bool:
        if sys.gettrace() is not None or compat_compile.is_in_use() or not _is_alone():
            return False
        self._active = self.started = True
        for one in user_frames(frame, 64):
            if one.f_trace is None:
                one.f_trace = self._local
        first = next(iter(user_frames(frame, 1)), None)
        self._last = (first.f_code, first.f_lineno) if first is not None else None
        sys.settrace(self._called)
        return True

    def stop(self, frame: FrameType | None) -> None:
        self._active = False
        self._holder = None
        if sys.gettrace() == self._called:
            sys.settrace(None)
        at = frame
        while at is not None:
            if at.f_trace == self._local:
                at.f_trace = None
            local_names(at)
            at = at.f_back
        if SNAPSHOTS:
            _forget_snapshots()

    def caught(self) -> Place | None:
        """Where what carries a graph was put in; if nothing that was put in could be seen to, where all was."""
        self._check()
        counted = self.lines or self._idle
        if not counted or (not self.lines and len(counted) > 1):
            return None
        (code, line), _ = counted.most_common(1)[0]
        return _statement(code, line)

    # -- the interpreter's calls --------------------------------------------------------------------

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not self._active:
            return None
        if kind_of(frame.f_code) != USER or frame.f_code.co_filename.startswith("<"):
            return None
        return self._local(frame, event, arg)

    def _local(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not self._active:
            return None
        self._events += 1
        if self._events > MAX_EVENTS:
            self._active = False
            self._holder = None
            sys.settrace(None)
            return None
        if SNAPSHOTS:
            # A dictionary that somebody once asked for would go on holding variables that are deleted.
            frame.f_locals  # noqa: B018
        self._check()
        self._check_variable(frame)
        at: FrameType | None = frame
        if event == "return":
            # What is left of the line that called.
            at = next(iter(user_frames(frame.f_back, 1)), None)
        self._last = (at.f_code, at.f_lineno) if at is not None else None
        return self._local

    def _check_variable(self, frame: FrameType) -> None:
        if self._variable is None or id(frame) != self._variable[0]:
            return
        # Not to be emptied here: the interpreter takes back what it finds when the trace function returns.
        value = frame.f_locals.get(self._variable[1])
        now = [id(value)]
        if self._known is not None and now != self._known and self._last is not None:
            self._idle[self._last] += 1
        self._known = now

    def _check(self) -> None:
        if self._holder is None:
            return
        if sys.getrefcount(self._holder) <= OWN_REFERENCES:
            self._holder = None  # nobody else has it any more
            return
        now = self._look(self._holder)
        if self._known is not None and now != self._known:
            if self._last is not None:
                new = set(now) - set(self._known)
                (self.lines if _carries(self._holder, new) else self._idle)[self._last] += 1
            self._known = now


def _is_alone() -> bool:
    """Before Python 3.13 a traced frame's variables are read and written back around each call of the trace function,
    which could undo what another thread of the program does to a shared variable in between. Threads that run none of
    its code (a progress bar's, a loader's) share none with it."""
    if not SNAPSHOTS:
        return True
    me = threading.get_ident()
    return not any(user_frames(frame, 1) for thread, frame in sys._current_frames().items() if thread != me)


def _forget_snapshots() -> None:
    """A traced generator that is suspended would keep the variables of that time, and so their memory, to its end."""
    for one in gc.get_objects():
        if type(one) is GeneratorType or type(one) is CoroutineType:
            frame = one.gi_frame if type(one) is GeneratorType else one.cr_frame
            if frame is not None:
                local_names(frame)


def _carries(holder: Any, new: set[int]) -> bool:
    """Is there a graph to what was put in?"""
    for one in gc.get_referents(holder):
        if id(one) in new:
            for tensor in reachable(one, set()):
                if is_tensor(tensor) and compat.grad_fn_of(tensor) is not None:
                    return True
    return False


def _statement(code: CodeType, line: int) -> Place:
    """The statement on a line, as a place."""
    path = shown_path(code.co_filename)
    place = Place(path, line, 1, line, 1, code.co_qualname)
    file = syntax.file_of(path)
    if file is None:
        return place
    inner = None
    for node in file.within(file.tree):
        if isinstance(node, SIMPLE) and node.lineno <= line <= (node.end_lineno or node.lineno):
            inner = node
    return file.place(inner, place) if inner is not None else place
