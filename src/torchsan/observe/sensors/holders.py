"""Watches the end of the run, at which holders of memory are looked at once more."""

from __future__ import annotations

from torchsan.observe.recorder import shield
from torchsan.observe.sensors.aliases import AliasWatch


class HolderSensor:
    """The looks themselves are asked for by the sensors of writes, optimizers, backward and exposed memory."""

    def __init__(self, aliases: AliasWatch) -> None:
        self.aliases = aliases
        self.recorder = aliases.recorder

    def install(self) -> None:
        self.aliases.schedule.begin()

    @shield
    def close(self) -> None:
        try:
            self.aliases.finish()
        finally:
            self.aliases.schedule.end()
