"""What one run of the program left behind, in plain numbers, so that runs can be compared without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from torchsan.model import Finding
from torchsan.model.memory import Memory

# watch: under the recorder. heal: saved values are kept, refused writes are made all the same. scramble: that, and
# steps set parameters to fixed random values. frozen: that, but steps leave parameters where they are. slopes: losses
# are computed again beside the parameters. uncached: autocast keeps no copies of weights. lines: as it is, and which
# parts of the code it came to. shaken: healed, with other numbers; shaken watch: under the recorder, with the same.
# shaken alike: that, with the same noise for all tensors that one call makes.
# apart: healed, and no leaf shares its memory with what it was made from.
# fresh: healed, and a refused write of a leaf makes a new value that autograd follows; the leaf keeps its own.
# memory: what is kept is measured, and nothing else.
Mode = Literal[
    "watch",
    "heal",
    "scramble",
    "frozen",
    "slopes",
    "uncached",
    "lines",
    "shaken",
    "shaken watch",
    "shaken alike",
    "apart",
    "fresh",
    "memory",
]
WATCHED = ("watch", "shaken watch", "shaken alike")
HEALED = ("heal", "scramble", "frozen", "shaken", "apart", "fresh")

# Relative to the largest entry; in-place and out-of-place twins differ by rounding at most.
TOLERANCE = {"float64": 1e-8, "complex128": 1e-8, "float16": 2e-2, "bfloat16": 5e-2}
_DEFAULT = 1e-4


@dataclass(frozen=True, slots=True)
class Digest:
    """A tensor: all of its entries when small, else evenly spread ones, and its norm and sum."""

    shape: tuple[int, ...]
    dtype: str
    norm: float
    total: float
    entries: tuple[float, ...]

    def equals(self, other: Digest, slack: float = 1.0) -> bool:
        if (self.shape, self.dtype, len(self.entries)) != (other.shape, other.dtype, len(other.entries)):
            return False
        tolerance = slack * TOLERANCE.get(self.dtype, _DEFAULT)
        largest = max((abs(e) for e in self.entries if math.isfinite(e)), default=0.0)
        # Entries are summed up in `total`: rounding grows with their number.
        scales = [self.norm, self.norm * math.sqrt(max(1, math.prod(self.shape)))]
        pairs = [(self.norm, other.norm, scales[0]), (self.total, other.total, scales[1])]
        pairs += [(a, b, largest) for a, b in zip(self.entries, other.entries, strict=True)]
        return all(_close(a, b, tolerance * scale + 1e-12) for a, b, scale in pairs)


def _close(a: float, b: float, allowed: float) -> bool:
    if math.isfinite(a) and math.isfinite(b):
        return abs(a - b) <= allowed
    return a == b or (math.isnan(a) and math.isnan(b))


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor that a backward reached: its value then, and its gradient afterwards."""

    value: Digest
    gradient: Digest | None


@dataclass(frozen=True, slots=True)
class Pass:
    """One backward: the values it started from, and what it gave to each leaf."""

    roots: tuple[Digest, ...]
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step and the gradients that it took."""

    optimizer: str
    gradients: tuple[Digest, ...]

    @property
    def starved(self) -> bool:
        """Nothing to step with: what this optimizer trains is cut off."""
        return not self.gradients


# Stands for the name of an alias that is no name: so many containers or objects hold the memory.
HELD = "<held>"


@dataclass(frozen=True, slots=True)
class Holder:
    """What is no name and held the written memory: an attribute, a container, what a closure has.

    At this line, that of the write where it lives on by itself (depth -1), else that of the function that knows it.
    """

    path: str
    line: int
    name: str
    depth: int
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Alias:
    """A name that held the written memory: in the function that wrote (depth 0) or in a caller, at this line."""

    path: str
    line: int
    name: str
    depth: int
    whole: bool
    # For what is held: the names of the lists and dictionaries that hold it.
    through: tuple[str, ...] = ()
    by: tuple[Holder, ...] = ()
    # It has other elements of the memory than those that are written.
    apart: bool = False


# Ends the name of a value that tells what a variable is to autograd.
AUTOGRAD = " as autograd sees it"
ValueKind = Literal["parameter", "buffer", "optimizer state", "variable", "result", "text"]
Aliases = dict[tuple[str, int], list[Alias]]
# By file: first line, column, last line, column of everything that was executed, in bytes as the syntax tree counts.
Ran = dict[str, set[tuple[int, int, int, int]]]


@dataclass(frozen=True, slots=True)
class Value:
    """Something that the run ended with: what it is, under which name, and the tensor, number or text itself."""

    kind: ValueKind
    name: str
    value: Digest | str


@dataclass(frozen=True, slots=True)
class Slope:
    """The derivative of a loss along a direction of some leaves: by autograd, and by differences of losses."""

    leaves: int
    told: float
    measured: float
    agrees: bool
    # Whether the pass reaches these leaves at all; else autograd tells that there is no slope.
    reached: bool = True


@dataclass(frozen=True, slots=True)
class Slopes:
    """One backward pass measured: every direction tried, and the leaves that could not be reached."""

    tried: tuple[Slope, ...]
    missed: int

    def agree(self, *, cut: bool = True) -> bool:
        """Leaves that a pass does not reach count only where an edit may have cut them off."""
        known = [slope for slope in self.tried if slope.reached or cut]
        return any(slope.reached for slope in known) and not self.missed and all(slope.agrees for slope in known)


@dataclass(frozen=True, slots=True)
class LeafUses:
    """The leaves of one pass, by the order of their first use."""

    # Used while gradients were recorded, also by a call that failed.
    graded: frozenset[int]
    # Used, and yet in no graph.
    unseen: frozenset[int]


@dataclass(slots=True)
class Trial:
    """One run."""

    passes: list[Pass] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    # What captured models answer in eager mode, one entry for each input that was tried.
    answers: list[Pass] = field(default_factory=list)
    # What was there at the end: parameters, buffers, state of optimizers, variables, results.
    ends: list[Value] = field(default_factory=list)
    # What it printed.
    printed: str = ""
    # Measured by differences, for the first passes.
    slopes: list[Slopes] = field(default_factory=list)
    leaf_uses: list[LeafUses] = field(default_factory=list)
    # What of the program's code was executed, where that was asked for; layers that write in place and never ran.
    ran: Ran = field(default_factory=dict)
    # What of it was executed again in another turn of a loop.
    again: Ran = field(default_factory=dict)
    idle: list[tuple[str, str]] = field(default_factory=list)
    # A copy that was kept for a holder was itself written later: the sharing may be meant.
    copies_written: bool = False
    # How many copies were made for holders.
    copies: int = 0
    # Installed modules that the program imported, and whether a fork of a process that has them is the same.
    modules: list[str] = field(default_factory=list)
    forkable: bool = True
    seconds: float = 0.0
    # Bytes that each graph kept, also that of a backward that then failed.
    kept: list[int] = field(default_factory=list)
    # Nodes of all graphs that were alive at each step.
    live_nodes: list[int] = field(default_factory=list)
    # What was measured, in the mode for it.
    memory: Memory | None = None
    findings: list[Finding] = field(default_factory=list)
    # By the line that writes; a healed run knows them.
    aliases: Aliases = field(default_factory=dict)
    error: str = ""
    explained: bool = False
    # Set to 0 where the program means to say something by its exit code.
    status: int = 0
    exit_code: int = 0
    stopped: bool = False
    timed_out: bool = False
    output: str = ""
    troubles: list[str] = field(default_factory=list)
    # How many tensors each call made, where they are moved.
    made: dict[str, int] = field(default_factory=dict)
    # A backward went through leaves as they were before a change and as they were after it; a healed run knows.
    astride: bool = False
    # Lines whose refused write of a leaf is made for every pass anew, and what that may mean; a healed run knows.
    meanings: dict[tuple[str, int], str] = field(default_factory=dict)
    # Lines that write, unseen by autograd, what has a gradient; known where it was asked which lines are executed.
    unseen: set[tuple[str, int]] = field(default_factory=set)
    # How many processes took part.
    ranks: int = 1

    @property
    def alarms(self) -> list[Finding]:
        return [f for f in self.findings if f.level != "note" and f.certainty != "possible"]

    @property
    def failed(self) -> bool:
        return bool(self.error) or self.status != 0

    @property
    def gradients(self) -> int:
        return sum(leaf.gradient is not None for one in self.passes for leaf in one.leaves)

    @property
    def hollow(self) -> str:
        """Why values that are equal to these say nothing: whatever is done to nothing is the same."""
        losses = [root for one in self.passes for root in one.roots]
        if losses and not any(math.isfinite(root.norm) for root in losses):
            return "no loss is a finite number"
        gradients = [leaf.gradient for one in self.passes for leaf in one.leaves if leaf.gradient is not None]
        if gradients and not any(gradient.norm for gradient in gradients):
            return "all gradients are zero"
        return ""

    def extra(self, before: Trial) -> int:
        """Bytes that the graph keeps more than before, in the passes that both made."""
        return max((now - was for was, now in zip(before.kept, self.kept, strict=False)), default=0)
