"""What a custom function keeps on its `ctx`, changed by its own backward: the next pass through it finds it changed."""

from __future__ import annotations

import weakref
from types import FrameType
from typing import Any

import torch

from torchsan.model.events import Line, Memory, SharedDefaultWritten, Write
from torchsan.observe.holders.manner import manner_of
from torchsan.observe.holders.slots import Step
from torchsan.observe.holders.storing import stored_at
from torchsan.observe.keepsakes import kept_on
from torchsan.observe.names import local_names
from torchsan.observe.objects import is_a
from torchsan.observe.recorder import Recorder
from torchsan.observe.refusals import whole_statement
from torchsan.observe.sites import Site
from torchsan.observe.tensors import memory_of

MAX_CONTEXTS = 2_000


class Contexts:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        # By the context and the line: in which backward pass it came by last.
        self._written: dict[tuple[int, Site], tuple[weakref.ref[Any], int]] = {}

    def written(
        self, op: str, site: Site, tensor: Any, memory: int, args: tuple[Any, ...], frames: list[FrameType]
    ) -> None:
        """A write during backward. Told when the same line changes what the same node keeps in a second pass."""
        context = context_of(frames[0])
        if context is None or not manner_of(op, tensor, args).reads:
            return
        name = next((n for n, t in kept_on(context) if memory_of(t) == memory), None)
        if name is None:
            return
        if len(self._written) >= MAX_CONTEXTS:
            self._written.clear()
        key, number = (id(context), site), self.recorder.ledger.backwards
        known = self._written.get(key)
        self._written[key] = (weakref.ref(context), number)
        if known is None or known[0]() is not context or known[1] == number:
            return
        place = whole_statement(site.place)
        write = Write(op, "op", Line(place, site.library_place))
        owner = Step(None, "ctx", "local", id(context), "ctx")
        attribute = name.partition("[")[0]
        stored = stored_at(Step(owner, f".{attribute}", "attribute", id(context), attribute), frames)
        function = frames[0].f_code.co_qualname
        event = SharedDefaultWritten(Memory(f"ctx.{name}"), write, "stored", function, f"ctx.{name}", stored, place)
        self.recorder.emit(event)


def context_of(frame: FrameType) -> Any:
    """The `ctx` of the custom backward that this frame runs; None in any other function."""
    values, first = local_names(frame), frame.f_code.co_varnames[:1]
    found = next((values.get(name) for name in first), None)
    return found if is_a(found, torch.autograd.function.BackwardCFunction) else None
