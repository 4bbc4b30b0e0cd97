"""Watches warnings: those that torch gives below a wrapper of ours are the calling line's, and some tell of a fault.

C++ gives a warning to the innermost Python frame, which may be ours: filters by module, and the rule that a line is
warned of once, would then go by our file. Our modules have no registry of warnings, so each one comes through here.
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
            try:
                frame = _given_at(message.filename, _getframe(1))
                if self.recorder.active and any(listener(message, frame) for listener in self.listeners):
                    return
            except Exception as error:
                frame = None
                self.recorder.give_up(error)
            if frame is not None and frame.f_code.co_filename != message.filename:
                _give_again(message, frame)
            else:
                original(message)

        return _showwarnmsg


def _given_at(filename: str, frame: FrameType | None) -> FrameType | None:
    """The frame that a warning belongs to; None where no frame has this file."""
    while frame is not None and frame.f_code.co_filename != filename:
        frame = frame.f_back
    while frame is not None and kind_of(frame.f_code) == OURS:
        frame = frame.f_back
    return frame


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
