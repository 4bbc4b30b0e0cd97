"""What the recorder tells the rules about memory: who keeps what, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass

from torchsan.model.events import Line, Memory
from torchsan.model.memory import Growth


@dataclass(frozen=True, slots=True)
class GraphKept:
    """The graphs of earlier steps are held by one holder, and there are more with every step."""

    holder: Memory
    held: Line
    made: Line
    container: bool
    entries: int
    steps: int
    nodes_per_step: float
    bytes_per_step: float
    # Every one of these graphs has been through a backward already, and can serve no other.
    used: bool

    def row(self) -> Growth:
        place = self.held.place
        return Growth(place.path, place.line, self.holder.name, self.nodes_per_step, self.bytes_per_step)


@dataclass(frozen=True, slots=True)
class SmallViewKept:
    """A graph keeps a whole memory for the sake of a small view of it."""

    op: str
    saved: Line
    view_bytes: int
    storage_bytes: int


@dataclass(frozen=True, slots=True)
class GraphRetained:
    """`retain_graph=True`, and no later backward came through that graph."""

    backward: Line
    bytes: int
    times: int


@dataclass(frozen=True, slots=True)
class CopyUnneeded:
    """A copy after which neither side was written while both lived."""

    copy: Line
    bytes: int
    times: int


MemoryEvent = GraphKept | SmallViewKept | GraphRetained | CopyUnneeded
