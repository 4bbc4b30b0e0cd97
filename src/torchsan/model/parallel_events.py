"""What is known of several processes: facts of one rank, and facts that only a comparison of ranks shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torchsan.model.events import Line, Memory


@dataclass(frozen=True, slots=True)
class StridedCollective:
    """A collective was given memory with gaps or overlaps, or ranks gave it in different layouts."""

    memory: Memory
    op: str
    called: Line
    form: Literal["gaps", "overlap", "layouts"]
    strides: str = ""


@dataclass(frozen=True, slots=True)
class TouchedInFlight:
    """Memory of a collective was read or written before anybody had waited for it."""

    memory: Memory
    op: str
    called: Line
    touched: Line
    writes: bool
    waited: bool
    written: Line | None = None  # the first line that wrote, where `touched` only reads


@dataclass(frozen=True, slots=True)
class ResultDropped:
    """The result of a collective is in a tensor that nobody has a name for."""

    op: str
    called: Line
    expression: str
    owner: str
    form: Literal["written", "returned"] = "written"  # into a copy, or given back by a functional collective


@dataclass(frozen=True, slots=True)
class Stand:
    """What a rank did at one point of the comparison."""

    rank: int
    what: str
    line: Line | None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class RanksDisagree:
    """The same call of a group is another one on another rank."""

    form: Literal["call", "order", "loop"]
    stands: tuple[Stand, ...]
    number: int = 0
    loop: Line | None = None


@dataclass(frozen=True, slots=True)
class RankStuck:
    """A rank waited in a collective until the end, and another one never came."""

    stands: tuple[Stand, ...]


@dataclass(frozen=True, slots=True)
class ReplicasDiverged:
    """Weights that should be equal on all ranks are not."""

    names: tuple[str, ...]
    ranks: tuple[int, ...]
    cause: Literal["written", "unmanaged", "settings", "unsynced", "start", "unknown"]
    line: Line
    seen: Line | None = None
    detail: str = ""
    step: int = 0


@dataclass(frozen=True, slots=True)
class ParameterUnknown:
    """A parameter of a wrapped module is not the one that DDP knows: its gradient is this rank's alone."""

    memory: Memory
    why: Literal["replaced", "unfrozen", "converted", "removed"]
    changed: Line | None
    wrapped: Line
    used: Line


@dataclass(frozen=True, slots=True)
class BufferUpdateLost:
    """A rank's own update of a buffer was replaced by rank 0's."""

    memory: Memory
    written: Line
    broadcast: Line


@dataclass(frozen=True, slots=True)
class KeptGradient:
    """A gradient that was kept is a piece of a bucket which the next backward fills."""

    memory: Memory
    holder: str
    kept: Line | None
    overwritten: Line


@dataclass(frozen=True, slots=True)
class StepWithoutGradients:
    """An optimizer stepped again and again, and none of its parameters had a gradient."""

    optimizer: str
    step: Line
    made: Line | None
    backward: Line | None


@dataclass(frozen=True, slots=True)
class ShardTouched:
    """A part of a sharded or gathered parameter was used in a way that is lost, differs or crashes."""

    form: Literal[
        "lost-write",
        "kept",
        "replaced",
        "parts-differ",
        "replicas-differ",
        "replicas-parted",
        "plain-data",
        "lost-data",
    ]
    memory: Memory
    line: Line
    other: Line | None = None
    detail: str = ""
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Processes share what each should have for itself, or have for themselves what they should share."""

    form: Literal["gradients", "written-after-send", "own-copy", "ddp"]
    memory: Memory
    line: Line
    other: Line | None = None
    detail: str = ""


ParallelEvent = (
    StridedCollective
    | TouchedInFlight
    | ResultDropped
    | RanksDisagree
    | RankStuck
    | ReplicasDiverged
    | ParameterUnknown
    | BufferUpdateLost
    | KeptGradient
    | StepWithoutGradients
    | ShardTouched
    | SharedMemory
)
