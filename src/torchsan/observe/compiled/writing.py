"""A write of a region to what it was given, as evidence sees it: its line, its operands, how it treats old values."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch
import torch.fx

from torchsan.observe.compiled.scopes import View
from torchsan.observe.evidence.scene import Writing
from torchsan.observe.holders.manner import Manner, manner_of
from torchsan.observe.tensors import is_plain

# What was computed inside the region, and is gone.
UNKNOWN = object()


class RegionWriting(Writing):
    """The operands that come from inside the region are not known, but their form is: it tells the manner."""

    made_in: Manner = Manner.ACCUMULATED
    known = True

    @property
    def manner(self) -> Manner:
        return self.made_in


def operands_of(node: torch.fx.Node, inputs: dict[torch.fx.Node, int]) -> tuple[Any, ...]:
    """The operands of a write behind what it writes: constants, inputs by their number, or unknown."""
    found: list[Any] = []
    for value in (*node.args[1:], *node.kwargs.values()):
        if isinstance(value, torch.fx.Node):
            found.append(Input(inputs[value]) if value in inputs else UNKNOWN)
        else:
            found.append(value if isinstance(value, (int, float, bool, complex, str, type(None))) else UNKNOWN)
    return tuple(found)


class Input(int):
    """The number of an input."""


def manner_on_fakes(op: str, args: tuple[Any, ...]) -> Manner:
    """In what manner the op treats what is there, told by the form of its operands."""
    receiver = args[0] if args and isinstance(args[0], torch.Tensor) else None
    return manner_of(op, receiver, args) if receiver is not None else Manner.ACCUMULATED


def view_of(part: torch.Tensor, whole: torch.Tensor) -> View | None:
    """How the written part lies in the memory of the input, where it is not all of it."""
    try:
        form = tuple(map(int, part.shape)), tuple(map(int, part.stride())), int(part.storage_offset())
        same = form == (tuple(map(int, whole.shape)), tuple(map(int, whole.stride())), int(whole.storage_offset()))
    except Exception:
        return None
    return None if same else form


def region_writing(
    op: str, site: Any, tensor: torch.Tensor, operands: tuple[Any, ...], manner: Manner, frame: Any,
    frames: list[FrameType], seen: int, inputs: tuple[Any, ...],
) -> RegionWriting:  # fmt: skip
    values = tuple(inputs[value] if isinstance(value, Input) else value for value in operands)
    known = all(value is not UNKNOWN and (not isinstance(value, torch.Tensor) or is_plain(value)) for value in values)
    args = (tensor, *(value for value in values if value is not UNKNOWN)) if known else (tensor,)
    writing = RegionWriting(op, site, tensor, args, {}, None, frame, frames, seen)
    writing.made_in, writing.known = manner, known
    return writing
