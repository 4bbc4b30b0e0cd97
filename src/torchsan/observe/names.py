"""The user's names for a tensor, looked up in the frames that are alive."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

import torch

from torchsan.model.events import Memory
from torchsan.observe.objects import attributes_of, entries_of, is_a, is_tensor, items_of, module_of, tensors_of
from torchsan.observe.sites import user_frames
from torchsan.observe.tensors import memory_of, shape_of

_MAX_ATTRIBUTES = 400


def _running() -> FrameType:
    return sys._getframe()


# From Python 3.13 on the variables of a function are seen through a proxy.
_FrameLocals = type(_running().f_locals)


def local_names(frame: FrameType) -> dict[str, Any]:
    """A copy of a frame's variables, which keeps nothing alive in the frame itself.

    Before Python 3.13 reading `f_locals` of a function leaves a dictionary on the frame that would hold
    the user's tensors until the function returns; it is emptied again here.
    """
    names = frame.f_locals
    if sys.version_info >= (3, 13) and type(names) is _FrameLocals:
        return dict(names)
    # The body of a class runs in whatever its metaclass prepared, and names in a module may be of any class.
    copied: dict[str, Any] = dict(entries_of(names))
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        names.clear()  # a plain dictionary, made by the interpreter
    return copied


def variables(frames: Iterable[FrameType]) -> Iterator[tuple[str, Any]]:
    """Local variables of the frames, innermost first, then the globals of the outermost."""
    last = None
    for frame in frames:
        last = frame
        yield from local_names(frame).items()
    if last is not None:
        yield from ((name, value) for name, value in entries_of(last.f_globals) if not name.startswith("__"))


def _modules_in(name: str, value: Any) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules held by a variable: itself, or in the attributes of a plain object or a container."""
    if is_a(value, torch.nn.Module):
        yield name, value
        return
    held = items_of(value, 32)
    if not held and module_of(value) not in ("builtins", "torch") and not is_a(value, type) and not is_tensor(value):
        held = [(f".{key}", item) for key, item in attributes_of(value, _MAX_ATTRIBUTES).items()]
    for key, item in held:
        if is_a(item, torch.nn.Module):
            yield f"{name}{key}", item


def modules(frames: list[FrameType]) -> Iterator[tuple[str, torch.nn.Module]]:
    seen: set[int] = set()
    for name, value in variables(frames):
        for path, module in _modules_in(name, value):
            if id(module) not in seen:
                seen.add(id(module))
                yield path, module


def in_modules(memory: int, frames: list[FrameType]) -> Memory | None:
    """The parameter or buffer that owns this memory, as `model.layers.3.weight`."""
    for path, module in modules(frames):
        for name, tensor, kind in tensors_of(module):
            if memory_of(tensor) == memory:
                return Memory(f"{path}.{name}", kind, shape_of(tensor))
    return None


def in_variables(memory: int, frames: list[FrameType]) -> str:
    """A local variable (or attribute of `self`) whose tensor has this memory; empty when there is none."""
    for name, value in variables(frames):
        if is_tensor(value):
            if memory_of(value) == memory:
                return name
        elif name == "self" and not is_a(value, torch.nn.Module):
            for key, item in list(attributes_of(value).items())[:_MAX_ATTRIBUTES]:
                if is_tensor(item) and memory_of(item) == memory:
                    return f"self.{key}"
    return ""


def name_memory(memory: int | None, frame: FrameType | None, shape: tuple[int, ...] = ()) -> Memory:
    """The best name that the frames at and above this one have for a memory."""
    if memory is None or frame is None:
        return Memory("", shape=shape)
    frames = user_frames(frame)
    return in_modules(memory, frames) or Memory(in_variables(memory, frames), shape=shape)
