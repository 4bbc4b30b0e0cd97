"""What was seen while captures of a model were compared with the model itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torchsan.model.span import Place

What = Literal["wrong", "raises", "fails", "once"]
Column = Literal["values", "size", "calls", "seed", "effects", "dtype", "mode", "capture"]


@dataclass(frozen=True, slots=True)
class ReadOut:
    """A tensor's value or shape became a Python value, which a capture keeps as a constant."""

    kind: str
    source: Literal["data", "shape"]
    use: Literal["branch", "loop", "rows", "number", "array"]
    place: Place
    text: str
    before: str = ""
    after: str = ""
    callers: tuple[Place, ...] = ()
    # Whether the value is the number of rounds itself, and not something that it is computed from.
    counts: bool = False
    # The relation to which sizes are held, where it is not one size alone that is taken.
    limit: str = ""


@dataclass(frozen=True, slots=True)
class StateUse:
    """Python state (an attribute or a global) that forward reads and writes."""

    name: str
    writes: tuple[Place, ...]
    reads: tuple[Place, ...]
    is_global: bool = False


@dataclass(frozen=True, slots=True)
class Draw:
    """Random numbers taken where no capture can see it (`random`, NumPy), or in a branch."""

    source: str
    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class TensorWrite:
    """An input, parameter or buffer that eager changes and the capture does not, or the other way round."""

    target: str
    place: Place | None
    text: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A dtype or device of the example that the capture keeps."""

    place: Place
    text: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Departure:
    """No line was proved to be the cause: the first operation at which capture and eager part, or at least the model.

    `by_optimiser`: TorchScript is right once it does not optimise, so that no line of the program is to blame.
    """

    place: Place
    text: str
    only_size_one: bool = False
    is_operation: bool = False
    by_optimiser: bool = False


@dataclass(frozen=True, slots=True)
class ModeUse:
    """A layer, or a line that reads `self.training`, by which train and eval differ."""

    place: Place
    text: str
    layers: tuple[str, ...]
    training: bool
    others: tuple[Place, ...] = ()
    capture: Place | None = None


@dataclass(frozen=True, slots=True)
class FailedWrite:
    """The line on which a capture died, and which writes in place."""

    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class LiveChange:
    """Something of the module that is not as it was before the capture, which the program made itself or we did."""

    target: str
    change: str
    place: Place | None
    by_program: bool = False


Cause = ReadOut | StateUse | Draw | TensorWrite | Constant | Departure | ModeUse | FailedWrite | LiveChange


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one method of capture made of the cause."""

    method: str
    what: What
    detail: str
    inputs: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """One cause, and every capture that it makes wrong."""

    cause: Cause
    column: Column
    dimension: str
    verdicts: tuple[Verdict, ...]
    works: tuple[str, ...] = ()
