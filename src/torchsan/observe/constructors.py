"""Where `inplace=True` layers were made: the write happens at the call, the cure is at the constructor."""

from __future__ import annotations

import inspect
import sys
import weakref
from functools import cache
from types import FrameType
from typing import Any

import torch

from torchsan.model import Place
from torchsan.observe.names import local_names
from torchsan.observe.patches import Patches
from torchsan.observe.sites import Site, site_of

_made: weakref.WeakKeyDictionary[torch.nn.Module, Site] = weakref.WeakKeyDictionary()


@cache
def _inplace_classes() -> list[type]:
    found = []
    for value in vars(torch.nn).values():
        if isinstance(value, type) and issubclass(value, torch.nn.Module) and "__init__" in vars(value):
            try:
                if "inplace" in inspect.signature(value).parameters:
                    found.append(value)
            except (TypeError, ValueError):
                continue
    return list(dict.fromkeys(found))


def install(patches: Patches) -> None:
    for cls in _inplace_classes():
        patches.set(cls, "__init__", _wrap(cls.__init__))  # type: ignore[misc]


def _wrap(original: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if getattr(self, "inplace", False):
            _made[self] = site_of(sys._getframe(1))

    __init__.__wrapped__ = original  # type: ignore[attr-defined]
    __init__.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    __init__.__doc__ = original.__doc__
    return __init__


def layer_site(frame: FrameType | None) -> Site | None:
    """The constructor of the in-place layer whose `forward` is running at or just above this frame."""
    for _ in range(3):
        if frame is None or not _made:
            return None
        if frame.f_code.co_name == "forward" and frame.f_code.co_argcount:
            layer = local_names(frame).get("self")
            return _made.get(layer) if isinstance(layer, torch.nn.Module) else None
        frame = frame.f_back
    return None


def constructor_of(frame: FrameType | None) -> Place | None:
    site = layer_site(frame)
    return site.place if site is not None else None
