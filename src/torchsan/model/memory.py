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

    @property
    def peak(self) -> StepMemory | None:
        return max(self.steps, key=lambda step: (step.kept_bytes, -step.step), default=None)

    def as_json(self) -> dict[str, Any]:
        peak = self.peak
        return {
            "peak_bytes": max((step.live_bytes for step in self.steps), default=0),
            "kept_bytes": peak.kept_bytes if peak else 0,
            "peak_step": peak.step if peak else 0,
            "kept_anyway_bytes": self.kept_anyway_bytes,
            "passes": self.passes,
            "kept": [asdict(row) for row in self.kept],
            "steps": [asdict(step) for step in self.steps],
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
        )


def size(number: int) -> str:
    """Bytes as people read them."""
    value = float(number)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
