"""What the recorder tells the rules: plain facts about a run, with places, no tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torchsan.model.span import Place, Role, Span

MemoryKind = Literal["parameter", "buffer", "tensor"]
WriteKind = Literal[
    "op", "optimizer", "data", "set_data", "foreign", "batch_norm", "collective", "recomputed", "unknown"
]
Reason = Literal[
    "leaf",
    "leaf-view",
    "multi-view",
    "detached-view",
    "no-grad-view",
    "custom-function",
    "inference",
    "overlap",
    "operand-overlap",
    "parameter-replaced",
]


# How sure an alias event is: `possible` where a live reference would make sense, too.
Sure = Literal["proved", "possible"]


@dataclass(frozen=True, slots=True)
class Memory:
    """A tensor as the user knows it."""

    name: str
    kind: MemoryKind = "tensor"
    shape: tuple[int, ...] = ()

    @property
    def quoted(self) -> str:
        return f"`{self.name}`" if self.name else "a tensor"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the user's, and the library's line below it that did the work."""

    place: Place
    library: Place | None = None

    def span(self, role: Role, label: str, *, primary: bool = False) -> Span:
        return self.place.span(role, label, primary=primary)

    def spans(self, role: Role, label: str, *, primary: bool = False) -> list[Span]:
        """The user's line, and the library's as a second span."""
        found = [self.span(role, label, primary=primary)]
        if self.library is not None:
            found.append(self.library.span(role, "done here, inside the library"))
        return found


@dataclass(frozen=True, slots=True)
class Save:
    """Autograd kept a value: which op, and which of its values (`result`, or the name of an argument)."""

    op: str
    what: str
    line: Line | None
    version: int | None = None
    custom: bool = False
    in_backward: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """Something changed memory in place."""

    op: str
    kind: WriteKind
    line: Line | None
    version: int | None = None
    callers: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class StaleSave:
    """A backward needed a saved value that had been written meanwhile."""

    memory: Memory
    save: Save
    write: Write
    needed: Line | None
    silent: bool
    more_writes: tuple[Write, ...] = ()
    constructor: Place | None = None
    exposed: Line | None = None
    # Torch needed it while it compiled: there is no backward yet.
    compiling: bool = False


@dataclass(frozen=True, slots=True)
class RefusedWrite:
    """Torch refused a write when it was made, or when backward came to it."""

    reason: Reason
    memory: Memory
    write: Write
    origin: Line | None = None
    custom_write: Line | None = None
    text: str = ""
    # The backward that could not pass the write.
    needed: Line | None = None


@dataclass(frozen=True, slots=True)
class OverlapWritten:
    """One element of an expanded tensor was written, and so all that share its memory."""

    memory: Memory
    write: Write
    origin: Line | None
    copies: int


@dataclass(frozen=True, slots=True)
class ParameterRewritten:
    """A forward pass replaced the data of a parameter that is being trained."""

    memory: Memory
    write: Write
    module: str


SnapshotForm = Literal[
    "state_dict",  # a state dictionary used after the weights moved on
    "difference",  # parameters kept in a container, moved by every step
    "module",  # one module under two names
    "memory",  # two parameters of one memory
    "list",  # one memory in several entries that were filled at different times
    "operand",  # memory compared with itself under two names
    "itself",  # memory copied or blended onto itself under two names
    "returned",  # a buffer handed out by a call that a later call rewrites
    "alias",  # a second name of a tensor that is then written through the first
    "layers",  # one layer held several times
    "default",  # one layer, made in a default argument, in several modules
    "momenta",  # two optimizers that step with one state
]


@dataclass(frozen=True, slots=True)
class AliasedSnapshot:
    """Something kept as a copy is the live memory, and was rewritten while it was kept."""

    memory: Memory
    taken: Line | None
    write: Write | None
    used: Line | None
    form: SnapshotForm
    other: str = ""
    entries: int = 0
    certainty: Sure = "proved"


@dataclass(frozen=True, slots=True)
class InputOverwritten:
    """A call wrote its caller's tensor, and the caller reads it again."""

    memory: Memory
    write: Write
    called: Line
    read: Place
    callee: str
    constructor: Place | None = None
    certainty: Sure = "proved"


@dataclass(frozen=True, slots=True)
class OwnedWritten:
    """A function writes memory that its caller, or its object, goes on using, and nothing says that it is meant."""

    memory: Memory
    write: Write
    function: str
    # "argument", or "state" for what the object keeps from call to call.
    kind: Literal["argument", "state"]
    # On another way through the function the same statement writes to memory of its own.
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class ResultDropped:
    """An op that changes nothing in place stands alone: its result is lost. Told from source only."""

    op: str
    memory: Memory
    line: Line | None


@dataclass(frozen=True, slots=True)
class SharedDefaultWritten:
    """A default argument or a module-level constant was written by a function that runs again."""

    memory: Memory
    write: Write
    form: Literal["default", "global", "stored", "class", "cache"]
    function: str
    owner: str = ""
    stored: Line | None = None
    read: Place | None = None
    certainty: Sure = "proved"


@dataclass(frozen=True, slots=True)
class OperandOverwritten:
    """An op wrote memory that it, or the rest of its statement, still had to read."""

    memory: Memory
    write: Write
    form: Literal["operand", "exchange", "windows", "shifted"]
    first: Line | None = None
    difference: float = 0.0


@dataclass(frozen=True, slots=True)
class GradientCut:
    """A gradient that was plainly expected cannot flow."""

    memory: Memory
    cut: Line | None
    form: Literal["constant-term", "no-graph", "non-leaf-grad", "gathered"]
    needed: Line | None = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class StaleCast:
    """Autocast's cached copy of a weight was used after the weight had been stepped."""

    memory: Memory
    write: Write
    cast: Line | None
    needed: Line | None


@dataclass(frozen=True, slots=True)
class GradientEdited:
    """A hook wrote the gradient that it was given, and others still hold that tensor."""

    memory: Memory
    write: Write
    needed: Line | None


@dataclass(frozen=True, slots=True)
class GraphReused:
    """A backward went through a part of the graph whose saved values an earlier backward had released."""

    op: str
    line: Line | None
    needed: Line | None
    first: Line | None
    carried: Memory | None = None


@dataclass(frozen=True, slots=True)
class CompiledOnlyFailure:
    """Lines that run in eager fail where they are compiled."""

    line: Line
    function: str
    error: str
    form: Literal["compiling", "backward", "gradient", "write", "refused"]
    called: Line | None = None
    save: Line | None = None


Event = (
    StaleSave
    | RefusedWrite
    | OverlapWritten
    | ParameterRewritten
    | AliasedSnapshot
    | InputOverwritten
    | OwnedWritten
    | ResultDropped
    | SharedDefaultWritten
    | OperandOverwritten
    | GradientCut
    | StaleCast
    | GradientEdited
    | GraphReused
    | CompiledOnlyFailure
)
