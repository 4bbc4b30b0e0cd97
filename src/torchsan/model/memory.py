"""What a run kept for backward: the table of `run --memory`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class KeptRow:
    """Bytes that one line, in one module, kept at the peak step. Each storage counts once."""

    path: str
    line: int
    module: str
    what: str
    bytes: int
    values: int = 1


@dataclass(frozen=True, slots=True)
class StepMemory:
    """One backward pass: what its graph kept when it began."""

    step: int
    kept_bytes: int
    nodes: int
    # Memory of parameters and their gradients, and of all live tensors; 0 where it was not looked at.
    leaf_bytes: int = 0
    live_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Peak:
    """Live memory, at its largest in one step that was followed op by op."""

    # From the end of this backward pass on, to the next.
    after: int
    bytes: int
    # The largest outside of backward, and what was there when the step began.
    forward_bytes: int
    begin_bytes: int
    in_backward: bool


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """A module that was called: for how long, from which place in the program's own source, and whether in place."""

    path: str
    kind: str
    calls: int
    seconds: float
    # Path, line, column, end line, end column of the call; empty where a library calls it.
    call: tuple[str, int, int, int, int] | tuple[()] = ()
    # None for a module that has no such choice.
    inplace: bool | None = None


@dataclass(frozen=True, slots=True)
class Growth:
    """A graph that outlives its step, with its holder."""

    path: str
    line: int
    holder: str
    nodes_per_step: float
    bytes_per_step: float


@dataclass(slots=True)
class Memory:
    kept: list[KeptRow] = field(default_factory=list)
    steps: list[StepMemory] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)
    # Saved values that would live without the graph: parameters, buffers, inputs that are leaves.
    kept_anyway_bytes: int = 0
    passes: int = 0
    followed: Peak | None = None
    modules: list[ModuleRow] = field(default_factory=list)
    # Of the processor, from one backward pass to the next, without what measuring took: the middle one.
    step_seconds: float = 0.0

    @property
    def peak(self) -> StepMemory | None:
        return max(self.steps, key=lambda step: (step.kept_bytes, -step.step), default=None)

    @property
    def peak_bytes(self) -> int:
        """The peak of the step that was followed; else what was alive when a backward began."""
        if self.followed is not None:
            return self.followed.bytes
        return max((step.live_bytes for step in self.steps), default=0)

    def as_json(self) -> dict[str, Any]:
        peak = self.peak
        return {
            "peak_bytes": self.peak_bytes,
            "followed": asdict(self.followed) if self.followed is not None else None,
            "kept_bytes": peak.kept_bytes if peak else 0,
            "peak_step": peak.step if peak else 0,
            "kept_anyway_bytes": self.kept_anyway_bytes,
            "passes": self.passes,
            "kept": [asdict(row) for row in self.kept],
            "steps": [asdict(step) for step in self.steps],
            "modules": [asdict(module) for module in self.modules],
            "step_seconds": self.step_seconds,
            "growth": [asdict(growth) for growth in self.growth],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Memory:
        return cls(
            kept=[KeptRow(**row) for row in data["kept"]],
            steps=[StepMemory(**step) for step in data["steps"]],
            growth=[Growth(**growth) for growth in data["growth"]],
            kept_anyway_bytes=data["kept_anyway_bytes"],
            passes=data["passes"],
            modules=[ModuleRow(**{**row, "call": tuple(row["call"])}) for row in data.get("modules", ())],
            step_seconds=data.get("step_seconds", 0.0),
            followed=Peak(**data["followed"]) if data.get("followed") else None,
        )


@dataclass(frozen=True, slots=True)
class TriedEdit:
    """One of the edits that people recommend, tried: what it saved, what it cost, and what was proved."""

    title: str
    advice: str
    # helps: proved, and saves. folklore: proved, and saves nothing. refused: the program fails or changes with it.
    outcome: str
    kept_bytes: int = 0
    peak_bytes: int = 0
    time_ratio: float = 1.0
    why: str = ""
    diff: str = ""


@dataclass(slots=True)
class TriedEdits:
    """The table of `fix --memory`."""

    kept_bytes: int
    peak_bytes: int
    edits: list[TriedEdit] = field(default_factory=list)
    # What helps, all at once.
    together: TriedEdit | None = None
    runs: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def size(number: int) -> str:
    """Bytes as people read them."""
    value = float(number)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
