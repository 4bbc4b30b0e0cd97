"""Layers that draw at random, the same in place and out of place: else an edit could not be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from torchsan.observe.patches import Patches


class SameDraws:
    """Torch takes other random numbers for `dropout(x, inplace=True)` than for `dropout(x)`: not so in a trial."""

    def __init__(self) -> None:
        self._patches = Patches()

    def start(self) -> None:
        self._patches.set(F, "dropout", _masked(F.dropout, features=False))
        for name in ("dropout1d", "dropout2d", "dropout3d"):
            self._patches.set(F, name, _masked(getattr(F, name), features=True))

    def stop(self) -> None:
        self._patches.remove()


def _masked(original: Callable[..., Any], *, features: bool) -> Callable[..., Any]:
    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        plain = type(input) in (torch.Tensor, torch.nn.Parameter) and 0.0 < p < 1.0 and training
        if not plain or torch.jit.is_tracing() or torch.compiler.is_compiling() or (features and input.dim() < 3):
            return original(input, p, training, inplace)
        shape = [*input.shape[:2], *[1] * (input.dim() - 2)] if features else input.shape
        mask = (torch.rand(shape, device=input.device) >= p).to(input.dtype).div_(1.0 - p)
        return input.mul_(mask) if inplace else input * mask

    dropout.__name__, dropout.__doc__ = original.__name__, original.__doc__
    dropout.__module__ = original.__module__
    return dropout
