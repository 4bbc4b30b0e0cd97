"""The first calls of a region, in which its graph is tried out in eager on copies of what it is given."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch.fx

from torchsan.observe.compiled.dropped import DroppedWrites, dropped_writes_of
from torchsan.observe.compiled.records import Replay
from torchsan.observe.compiled.rehearsal import Rehearsal, rehearsal_of
from torchsan.observe.compiled.replay import tell_debugger
from torchsan.observe.compiled.scopes import Scopes

if TYPE_CHECKING:
    from torchsan.observe.recorder import Recorder
    from torchsan.observe.sensors.aliases import AliasWatch


class Trials:
    """An op that copies do not suit ends them: what they would have shown stays unknown."""

    def __init__(
        self,
        recorder: Recorder,
        watch: Callable[[], AliasWatch],
        rehearsal: Rehearsal | None,
        dropped: DroppedWrites | None,
    ) -> None:
        self.recorder = recorder
        self.watch = watch
        self.rehearsal = rehearsal
        self.dropped = dropped

    @property
    def over(self) -> bool:
        return self.rehearsal is None and self.dropped is None

    def before(self, args: tuple[Any, ...], frame: FrameType) -> list[Any] | None:
        """Rehearse the region. What comes back is for `after`, if it is to be seen whether its writes are made."""
        if self.recorder.asleep or self.recorder.backward is not None:
            return None
        try:
            if self.rehearsal is not None:
                self.rehearsal.run(args, frame, self.watch)
                self.rehearsal = self.rehearsal if self.rehearsal.left else None
            return self.dropped.before(args) if self.dropped is not None else None
        except Exception as error:
            self._end(error)
            return None

    def after(self, args: tuple[Any, ...], kept: list[Any], frame: FrameType) -> None:
        try:
            if self.dropped is not None:
                self.dropped.after(args, kept, frame)
                self.dropped = self.dropped if self.dropped.left else None
        except Exception as error:
            self._end(error)

    def _end(self, error: Exception) -> None:
        tell_debugger(error)
        self.rehearsal = self.dropped = None


def trials_of(
    recorder: Recorder,
    watch: Callable[[], AliasWatch],
    module: torch.fx.GraphModule,
    known: Replay,
    scopes: dict[torch.fx.Node, Scopes],
    name: str,
) -> Trials | None:
    """None where there is nothing to try out, or nobody to judge it."""
    if not recorder.judging:
        return None
    found = Trials(
        recorder, watch, rehearsal_of(module, known, scopes), dropped_writes_of(recorder, module, known, name)
    )
    return None if found.over else found
