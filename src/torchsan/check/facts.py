"""What the engine hands to the rules: facts about places, without a judgement."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from torchsan.model import Certainty, Place

Kind = Literal[
    "saved-overwritten",  # a value that backward needs is written: first=save, last=backward
    "leaf-written",
    "leaf-view-written",
    "several-views-written",
    "no-grad-view-written",
    "parameter-replaced",
    "expanded-written",
    "inference-written",
    "custom-function-written",
    "parameter-data-written",
    "stale-snapshot",
    "argument-written",
]


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that the source does. `write` is the place to file it under."""

    kind: Kind
    write: Place
    target: str
    certainty: Certainty = "certain"
    op: str = ""
    saved: Place | None = None
    saved_op: str = ""
    what: str = ""
    needed: Place | None = None
    origin: Place | None = None
    how: str = "op"
    storage: str = "fresh"
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Flow:
    """Where a fact was met: the function at the root of the path that was followed."""

    path: str
    root: str = ""
