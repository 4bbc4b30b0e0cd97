"""What a graph that was run without data has told: its writes, its autograd nodes, and where it stopped."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.fx

from torchsan.model.events import WriteKind
from torchsan.observe.compiled.lines import LineSite
from torchsan.observe.compiled.scopes import Scopes, View
from torchsan.observe.compiled.spoilt import Spoilt
from torchsan.observe.holders.manner import Manner
from torchsan.observe.ledger import Ledger


@dataclass(frozen=True, slots=True)
class RegionWrite:
    """The region writes one of its inputs, or a tensor that it holds itself, at this line.

    There is no line where all that was traced is torch's own code, as in a compiled `optimizer.step`.
    """

    # Position of the input; below zero, counted from the end of the replay's `held`.
    target: int
    op: str
    site: LineSite | None
    kind: WriteKind = "op"
    # Is it made past the version counter of the target, as a write through `.data` is?
    hidden: bool = False
    # The part that is written and the shape of the whole for which that holds; None where it is the whole.
    view: View | None = None
    shape: tuple[int, ...] = ()
    operands: tuple[Any, ...] = ()
    manner: Manner = Manner.ACCUMULATED
    # The node that is written, where that is all that the line writes.
    receiver: str = ""
    # The functions that led here, their variables told as parts. The first time counts for a line in a loop.
    scopes: Scopes = field(default=(), compare=False)

    def is_like(self, other: RegionWrite) -> bool:
        """The same line does the same to the same target, as in a loop that was unrolled."""
        return (self.target, self.op, self.site, self.kind) == (other.target, other.op, other.site, other.kind)


class Refused(NamedTuple):
    error: Exception
    node: torch.fx.Node
    inference: list[int]


class Inner(NamedTuple):
    """A write that only copies can show the effect of: the node that is written, and what the write comes down to.

    `own`: to memory that the region makes itself. Else that is in a list which the region fills, and counts only there.
    """

    written: torch.fx.Node
    op: str
    own: bool = True


@dataclass
class Replay:
    """What came of it."""

    writes: list[RegionWrite] = field(default_factory=list)
    held: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    roots: list[Any] = field(default_factory=list)
    spoilt: list[Spoilt] = field(default_factory=list)
    # Those of them whose values have been seen to change, of what the region itself makes.
    seen_spoilt: list[Spoilt] = field(default_factory=list)
    # The line of the last op whose result has a gradient.
    last: LineSite | None = None
    complete: bool = False
    # The error that ended it, the node at which it was raised, and which operands were made in inference mode.
    refused: Refused | None = None
    # Nodes that write memory which the region has made itself, or which is in lists that it has.
    inner: dict[torch.fx.Node, Inner] = field(default_factory=dict)
    # What all that the graph computes takes, in bytes, and whether it is all on the processor.
    size: int = 0
    on_processor: bool = False
