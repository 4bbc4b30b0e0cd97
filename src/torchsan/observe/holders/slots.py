"""A slot that holds memory, the way that leads to it, and all that were found at one moment."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType, FunctionType
from typing import Any, Literal

import torch

from torchsan.observe.holders.extents import Extent

Kind = Literal["local", "global", "attribute", "item", "default", "cell", "class", "cache", "young", "grad"]


@dataclass(slots=True)
class Step:
    """One step on the way from a root to a value."""

    above: Step | None
    part: str
    kind: Kind
    owner: int
    key: object
    depth: int = 0
    frame: FrameType | None = None
    # For defaults, the function that has them.
    function: FunctionType | None = None
    # Where the owner allows it, a reference that ends with it: its address may be another's afterwards.
    witness: weakref.ref[Any] | None = None
    # The class of the owner, where that is an object or a container.
    of: type | None = None

    @property
    def path(self) -> str:
        """The way as the user would write it: `self.rounds[2][0]`."""
        parts, at = [], self
        while at.above is not None:
            parts.append(at.part)
            at = at.above
        return at.part + "".join(reversed(parts))

    def up(self) -> Iterator[Step]:
        at: Step | None = self
        while at is not None:
            yield at
            at = at.above

    def without_frames(self) -> Step:
        """The way alone, which keeps nothing of the program's alive."""
        above = self.above.without_frames() if self.above is not None else None
        return Step(above, self.part, self.kind, self.owner, self.key, self.depth)

    @property
    def root(self) -> Step:
        return list(self.up())[-1]

    @property
    def outlives(self) -> bool:
        """Reached from something that stays when the functions that run have returned."""
        return any(step.kind in ("global", "attribute", "class", "cache", "default", "cell") for step in self.up())


@dataclass(slots=True)
class Holding:
    """A slot and what it holds now."""

    step: Step
    value: Any
    extent: Extent

    @property
    def slot(self) -> tuple[int, object]:
        return self.step.owner, self.step.key

    @property
    def family(self) -> tuple[object, ...]:
        """Entries of one container, whatever their number and their place: the name or attribute that it goes by."""
        parts: list[str] = []
        for step in self.step.up():
            if step.kind != "item":
                return step.owner, step.key, *reversed(parts)
            parts.append("[]" if step.part.startswith("[") else step.part)
        return (self.step.owner, self.step.key)


@dataclass(slots=True)
class Census:
    holdings: list[Holding] = field(default_factory=list)
    # The classes of the instances that were met, by address, and how many; and the modules with the way to them.
    instances: dict[int, tuple[type, int]] = field(default_factory=dict)
    modules: list[tuple[Step, torch.nn.Module]] = field(default_factory=list)
    complete: bool = True

    def of(self, extent: Extent) -> list[Holding]:
        return [h for h in self.holdings if h.extent.meets(extent)]


def joined(above: Step, below: list[Step]) -> Step:
    """The same steps, innermost first, on another way."""
    for step in reversed(below):
        function: Any = step.function
        above = Step(above, step.part, step.kind, step.owner, step.key, above.depth + 1, step.frame, function)
        above.of = step.of
    return above
