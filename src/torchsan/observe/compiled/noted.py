"""What a region is about to write, as it was before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from torchsan.observe.compiled.records import RegionWrite
from torchsan.observe.sites import Site


@dataclass
class Noted:
    """What is about to be written, as it was before."""

    tensor: torch.Tensor
    memory: int
    before: int
    version: int
    silent: tuple[int, object] | None
    kept: object
    # Each write, its line, and what is to be done after a close look.
    writes: list[tuple[RegionWrite, Site, Any]]
    # The contents, where what is written may have another version than what was saved.
    apart: object = None


def version_of(tensor: torch.Tensor) -> int:
    try:
        return int(tensor._version)
    except Exception:
        return -1  # inference tensors count no versions
