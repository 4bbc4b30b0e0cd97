"""Things that must happen before a write: `freeze` refuses it, `heal` keeps the old value."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any


class Guards:
    """The callbacks in force. `on` is the only thing that the fast path looks at."""

    def __init__(self) -> None:
        self.on = False
        self._callbacks: list[Callable[[tuple[Any, ...], FrameType], None]] = []
        # Told whenever `on` may have changed.
        self.listeners: list[Callable[[], None]] = []

    def add(self, callback: Callable[[tuple[Any, ...], FrameType], None]) -> None:
        self._callbacks.append(callback)
        self._switch()

    def remove(self, callback: Callable[[tuple[Any, ...], FrameType], None]) -> None:
        if callback in self._callbacks:
            self._callbacks.remove(callback)
        self._switch()

    def _switch(self) -> None:
        self.on = bool(self._callbacks)
        for listener in self.listeners:
            listener()

    def before_write(self, written: tuple[Any, ...], frame: FrameType) -> None:
        for callback in list(self._callbacks):
            callback(written, frame)


guards = Guards()
