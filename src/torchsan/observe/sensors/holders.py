"""Watches the moments at which holders of memory are worth a look beside writes: backward passes and the end."""

from __future__ import annotations

from types import FrameType
from typing import Any

from torchsan.observe.recorder import shield
from torchsan.observe.sensors.aliases import AliasWatch


class HolderSensor:
    def __init__(self, aliases: AliasWatch) -> None:
        self.aliases = aliases
        self.recorder = aliases.recorder

    def install(self) -> None:
        self.recorder.before_backward.append(self._before_backward)

    def close(self) -> None:
        self._finish()

    @shield
    def _before_backward(self, roots: list[Any], frame: FrameType) -> None:
        self.aliases.before_backward(frame)

    @shield
    def _finish(self) -> None:
        self.aliases.finish()
