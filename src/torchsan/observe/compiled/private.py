"""What we run of a program's graphs leaves no trace in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx.traceback

from torchsan import compat, compat_compile


@contextmanager
def state_kept() -> Iterator[None]:
    """Graphs switch grad mode and autocast; one that stops halfway must leave no trace."""
    grad = torch.is_grad_enabled()
    cached = torch.is_autocast_cache_enabled()
    kinds = ("cpu", "cuda")
    casts = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]
    try:
        yield
    finally:
        torch.set_grad_enabled(grad)
        torch.set_autocast_cache_enabled(cached)
        for kind, enabled, dtype in casts:
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, dtype)


@contextmanager
def on_our_own() -> Iterator[None]:
    """A graph is run that nobody asked for: unseen by modes and compilers, and the random stream is put back."""
    random, held = torch.get_rng_state(), compat_compile.hold()
    try:
        with compat.unseen(), compat.saved_unseen(), state_kept(), torch.no_grad():
            yield
    finally:
        compat_compile.release(held)
        if not torch.equal(random, torch.get_rng_state()):
            torch.set_rng_state(random)


@contextmanager
def told_by(mark: Callable[[], Any]) -> Iterator[None]:
    """Every autograd node made meanwhile is marked with what this function gives then."""
    anomaly, check_nan = compat.is_anomaly(), compat.is_anomaly_check_nan()
    original = torch.fx.traceback.format_stack
    torch.fx.traceback.format_stack = mark
    compat.set_anomaly(True, False)
    try:
        yield
    finally:
        compat.set_anomaly(anomaly, check_nan)
        torch.fx.traceback.format_stack = original
