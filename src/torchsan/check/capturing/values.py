"""What a value of `forward` is to a capture."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    DATA = "a tensor that hangs on the input"
    SEVERAL = "a list or tuple of such tensors"
    SIZE = "a size of the input, or a number made of sizes"
    NUMBER = "a Python number made of the input's data"
    OTHER = "anything else, or not known"


@dataclass(slots=True, eq=False)
class Reading:
    """A place at which data, or a size, become a Python value, and what is made of it."""

    node: ast.AST
    program: object
    source: str
    # "number", or what the number turned out to steer: "branch", "loop". Empty until anything is made of it.
    use: str = ""
    kind: str = "item"


@dataclass(frozen=True, slots=True)
class Value:
    kind: Kind = Kind.OTHER
    # Where a number left torch.
    readings: tuple[Reading, ...] = field(default=())

    @property
    def is_data(self) -> bool:
        return self.kind in (Kind.DATA, Kind.SEVERAL)


OTHER = Value()
DATA = Value(Kind.DATA)
SEVERAL = Value(Kind.SEVERAL)
SIZE = Value(Kind.SIZE)


def joined(values: list[Value]) -> Value:
    """What is computed from several values by arithmetic."""
    readings = tuple(r for v in values for r in v.readings)
    for kind in (Kind.DATA, Kind.NUMBER, Kind.SIZE):
        if any(v.kind is kind for v in values):
            return Value(kind, readings if kind is not Kind.DATA else ())
    return OTHER
