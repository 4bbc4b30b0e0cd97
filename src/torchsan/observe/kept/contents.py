"""What a holder holds, by address: for telling whether it has changed, without asking it."""

from __future__ import annotations

import gc
import sys
from collections import deque
from itertools import islice
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import torch

from torchsan.observe.objects import is_a, is_tensor

ITEMS = 100_000
# Entries up to which a container's content is compared one by one, and of all that it leads to.
BRIEF, DEEP = 256, 2_000
_CONTAINERS: tuple[Any, ...] = (list, dict, set, deque)
_CLOSED = (ModuleType, type, CodeType, FrameType, FunctionType, torch.nn.Module, torch.optim.Optimizer)


def is_any(value: object, kinds: tuple[type, ...]) -> bool:
    """`isinstance` by the true type alone."""
    return issubclass(type(value), kinds)


def is_container(value: object) -> bool:
    return is_any(value, _CONTAINERS) or is_array(value)


def content(holder: Any) -> list[int]:
    return [id(one) for one in gc.get_referents(holder)]


def deep_content(holder: Any) -> list[int]:
    """The addresses of what a holder holds, and of what that holds; of long containers the length and the last entries.

    Cheap enough to be asked at every line.
    """
    found: list[int] = []
    level = _entries(holder, found)
    for _ in range(2):
        below: list[Any] = []
        for one in level:
            if len(found) > DEEP:
                return found
            if gc.is_tracked(one) and not is_tensor(one) and not is_any(one, _CLOSED):
                below += _entries(one, found)
        level = below
    return found


def _entries(holder: Any, found: list[int]) -> list[Any]:
    length = _length(holder)
    found.append(length)
    if length <= BRIEF:
        held = flat(holder)[:ITEMS] if is_array(holder) else gc.get_referents(holder)
    elif is_a(holder, dict):
        held = list(islice(reversed(dict.values(holder)), 4))
    elif is_a(holder, list) or is_a(holder, deque):
        kind: Any = list if is_a(holder, list) else deque
        held = list(islice(kind.__reversed__(holder), 4))
    else:
        held = []
    found += map(id, held)
    return held


def _length(holder: Any) -> int:
    return next((int(kind.__len__(holder)) for kind in _CONTAINERS if is_a(holder, kind)), 0)


def is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def flat(array: Any) -> list[Any]:
    found: list[Any] = array.ravel(order="K").tolist()
    return found
