"""Writes that compiled code leaves out: the lines change in eager what a region was given, and compiled they do not.

Looked at in the first calls: copies are made before, and where the region has left its input as it was, the graph is
run in eager on them. If that changes them, the write has been lost.
"""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchsan import compat
from torchsan.model.events import CompiledOnlyFailure, Line
from torchsan.observe.compiled.private import on_our_own
from torchsan.observe.compiled.records import RegionWrite, Replay
from torchsan.observe.compiled.rehearsal import can_be_tried, copies
from torchsan.observe.refusals import whole_statement
from torchsan.observe.sites import site_of, user_frames
from torchsan.observe.tensors import is_plain

if TYPE_CHECKING:
    from torchsan.observe.recorder import Recorder

TIMES = 3


class DroppedWrites:
    """The writes of one region that autograd's versions can count."""

    def __init__(self, recorder: Recorder, module: torch.fx.GraphModule, writes: list[RegionWrite], name: str) -> None:
        self.recorder = recorder
        self.module = module
        self.writes = {write.target: write for write in reversed(writes)}
        self.function = name
        self.left = TIMES

    def before(self, args: tuple[Any, ...]) -> list[Any] | None:
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        if not all(is_plain(t) and t.device.type == "cpu" for t in tensors):
            return None
        with compat.unseen(), torch.no_grad():
            return copies(args, set(self.writes))

    def after(self, args: tuple[Any, ...], kept: list[Any], frame: FrameType) -> None:
        """Tell of writes without an effect, once."""
        self.left -= 1
        with on_our_own():
            same = [target for target in self.writes if _equal(args[target], kept[target])]
            if not same:
                self.left = 0
                return
            random = torch.get_rng_state()
            torch.fx.Interpreter(self.module).run(*kept)
            drawn = not torch.equal(random, torch.get_rng_state())
            lost = [target for target in same if not drawn and not _equal(args[target], kept[target])]
        for target in lost:
            self.left = 0
            self._tell(self.writes[target], frame)

    def _tell(self, write: RegionWrite, frame: FrameType) -> None:
        if write.site is None:
            return
        frames = user_frames(frame)
        called = Line(site_of(frames[0]).place) if frames else None
        line = Line(whole_statement(write.site.place), write.site.library_place)
        self.recorder.emit(CompiledOnlyFailure(line, self.function, "", "write", called))


def dropped_writes_of(
    recorder: Recorder, module: torch.fx.GraphModule, known: Replay, name: str
) -> DroppedWrites | None:
    """None where nothing that was given is written, or where the graph does more than to compute."""
    writes = [w for w in known.writes if w.kind == "op" and not w.hidden and w.target >= 0 and w.site is not None]
    return DroppedWrites(recorder, module, writes, name) if writes and can_be_tried(module, known) else None


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """To the bit, as far as numbers go: one that is none equals itself."""
    return bool(torch.equal(torch.nan_to_num(one.detach()), torch.nan_to_num(other.detach())))
