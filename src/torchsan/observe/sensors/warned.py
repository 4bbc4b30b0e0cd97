"""Watches warnings: those that torch gives below a wrapper of ours are the calling line's, and some tell of a fault.

C++ gives a warning to the innermost Python frame, which may be ours, and Python code to the frame so many calls up,
ours among them: filters by module, and the rule that a line is warned of once, would then go by another file. Our
modules have no registry of warnings, so each one comes through here.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import OURS, kind_of

_getframe = sys._getframe


class WarningSensor:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        # Asked with every warning that is about to be shown, and where it comes from; True if it is not to be shown.
        self.listeners: list[Callable[[Any, FrameType | None], bool]] = []

    def install(self) -> None:
        self.recorder.patches.set(warnings, "_showwarnmsg", self._showing(warnings._showwarnmsg))  # type: ignore[attr-defined]

    def close(self) -> None:
        pass

    def _showing(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        def _showwarnmsg(message: Any) -> None:
            caller = _getframe(1)
            if caller.f_code is _give_again.__code__:
                original(message)
                return
            given = meant = None
            try:
                given, meant = _belongs(message, caller)
                if self.recorder.active and any(listener(message, meant) for listener in self.listeners):
                    return
            except Exception as error:
                self.recorder.give_up(error)
            if given is not None and meant is not None and meant is not given:
                _forget(message, given)
                _give_again(message, meant)
            else:
                original(message)

        return _showwarnmsg


def _belongs(message: Any, frame: FrameType | None) -> tuple[FrameType | None, FrameType | None]:
    """The frame that a warning was given to, and the one as many calls up without ours; None where there is none."""
    calls, given = 1, frame
    while given is not None and not (given.f_code.co_filename == message.filename and given.f_lineno == message.lineno):
        calls, given = calls + 1, given.f_back
    if given is None:
        return None, None
    meant = frame
    while meant is not None:
        calls -= kind_of(meant.f_code) != OURS
        if calls == 0:
            break
        meant = meant.f_back
    return given, meant


def _forget(message: Any, frame: FrameType) -> None:
    """That this line has given its warning."""
    registry = dict.get(frame.f_globals, "__warningregistry__")
    for line in (message.lineno, 0):
        dict.pop(registry or {}, (str(message.message), message.category, line), None)


def _give_again(message: Any, frame: FrameType) -> None:
    """As if our frames were not there. What the filters make of it, an error for instance, is as it would have been."""
    namespace = frame.f_globals
    # Where it was counted as the one time that it may be shown, by a filter that says "once".
    warnings.onceregistry.pop((str(message.message), message.category), None)  # type: ignore[attr-defined]
    warnings.warn_explicit(
        message.message,
        message.category,
        filename=frame.f_code.co_filename,
        lineno=frame.f_lineno,
        module=dict.get(namespace, "__name__") or "<string>",
        registry=dict.setdefault(namespace, "__warningregistry__", {}),
        source=message.source,
    )
