"""Where `inplace=True` layers were made: the write happens at the call, the cure is at the constructor."""

from __future__ import annotations

import functools
import sys
import weakref
from types import FrameType
from typing import Any

import torch

from torchsan.model import Place
from torchsan.observe.names import local_names
from torchsan.observe.objects import attributes_of, is_a
from torchsan.observe.patches import Patches
from torchsan.observe.sites import USER, Site, kind_of, site_of

# By address, since a module of the user's may define `__eq__` and `__hash__`.
_made: dict[int, tuple[weakref.ref[torch.nn.Module], Site]] = {}


def install(patches: Patches) -> None:
    # Every layer comes by here, whichever class of its own defines `__init__`.
    patches.set(torch.nn.Module, "__init__", _wrap(torch.nn.Module.__init__))


def _wrap(original: Any) -> Any:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        key = id(self)
        _made[key] = (weakref.ref(self, lambda _: _made.pop(key, None)), site_of(_maker(sys._getframe(1))))

    return __init__


def _maker(frame: FrameType) -> FrameType:
    """A layer of the user's own class calls us from its own `__init__`; who called that made the layer."""
    if frame.f_code.co_name == "__init__" and kind_of(frame.f_code) == USER and frame.f_back is not None:
        return frame.f_back
    return frame


def layer_site(frame: FrameType | None) -> Site | None:
    """The constructor of the in-place layer whose `forward` is running at or just above this frame."""
    for _ in range(3):
        if frame is None or not _made:
            return None
        if frame.f_code.co_name == "forward" and frame.f_code.co_argcount:
            return _maker_of(local_names(frame).get("self"))
        frame = frame.f_back
    return None


def _maker_of(layer: Any) -> Site | None:
    known = _made.get(id(layer))
    if known is None or known[0]() is not layer or not is_a(layer, torch.nn.Module):
        return None
    asked = attributes_of(layer).get("inplace")
    # A class of the program's own may have a metaclass that is asked by `==`, and so by `in`: `is` asks nobody.
    plain = type(asked) is bool or type(asked) is int
    return known[1] if plain and asked else None


def maker_at(address: int) -> Site | None:
    """The constructor of the in-place layer that lives at this address, if one still does."""
    known = _made.get(address)
    return _maker_of(known[0]()) if known is not None else None


def constructor_of(frame: FrameType | None) -> Place | None:
    site = layer_site(frame)
    return site.place if site is not None else None
