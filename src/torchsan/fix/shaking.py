"""The same program with other numbers: what agrees by chance in one run does not agree in this one.

Seeds are other seeds, and parameters and tensors that the program fills with constants are moved a little. What is
added depends on the text of the call that makes a tensor, on its function, and on how often it did: the same in two
versions of a program, wherever they have the same call. Where one of the two makes more tensors by a call than the
other, their numbers say nothing, and both can be run with the same noise for all tensors that one call makes.
"""

from __future__ import annotations

import random
import sys
import zlib
from collections import Counter
from types import FrameType
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from torchsan.model.source import source_line
from torchsan.observe.patches import Patches
from torchsan.observe.sites import place_in, user_frames

OFFSET = 7_919
RELATIVE = 0.1
ABSOLUTE = 0.05
FACTORIES = {"ones", "full", "ones_like", "full_like", "eye", "linspace", "tensor"}
# Functions of their own in older Pythons, and parts of a function to everybody else.
COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}
# All zeros: moved only where they are trained, since they also begin sums.
STARTS = {"zeros", "zeros_like", "empty"}


class Shaken(TorchFunctionMode):  # type: ignore[misc]
    """On while the program runs."""

    def __init__(self, *, numbered: bool = True) -> None:
        super().__init__()
        self._patches = Patches()
        self._numbered = numbered
        self._count: Counter[str] = Counter()
        self._modules: set[int] = set()
        self._moved: dict[int, torch.Tensor] = {}
        self._hook: Any = None

    @property
    def made_by_call(self) -> dict[str, int]:
        """How many tensors each call has made."""
        return dict(self._count)

    def start(self) -> None:
        self._shift_seeds()
        # The program may never set a seed.
        torch.manual_seed(torch.initial_seed())
        random.seed(OFFSET)
        original = torch.optim.Optimizer.add_param_group

        def add_param_group(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
            original(optimizer, group)
            for parameter in optimizer.param_groups[-1]["params"]:
                self._move_parameter(parameter, "trained")

        self._patches.set(torch.optim.Optimizer, "add_param_group", add_param_group)
        self._hook = register_module_forward_pre_hook(self._called)
        self.__enter__()

    def stop(self) -> None:
        self.__exit__(None, None, None)
        self._hook.remove()
        self._patches.remove()

    def _shift_seeds(self) -> None:
        numpy = sys.modules.get("numpy")
        places = [(torch, "manual_seed"), (torch.random, "manual_seed"), (random, "seed")]
        if numpy is not None:
            places += [(numpy.random, "seed"), (numpy.random, "default_rng")]
        for owner, name in places:
            self._patches.set(owner, name, _shifted(getattr(owner, name)))
        self._patches.set(random, "Random", _Random)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in FACTORIES or (name in STARTS and (kwargs or {}).get("requires_grad")):
            self._move(result, name)
        return result

    def _called(self, module: torch.nn.Module, args: Any) -> None:
        """Before its first use; constants that a constructor put there train in step with each other."""
        if id(module) not in self._modules:
            self._modules.add(id(module))
            for name, parameter in module.named_parameters():
                self._move_parameter(parameter, name)

    def _move_parameter(self, parameter: torch.Tensor, name: str) -> None:
        """Once, or again where it was filled anew; never a copy that takes the place of a parameter for one call."""
        fresh = id(parameter) not in self._moved or (parameter.numel() > 1 and _is_constant(parameter))
        if parameter.is_leaf and fresh:
            self._moved[id(parameter)] = parameter
            self._move(parameter, name, line=False)

    def _move(self, tensor: Any, name: str, *, line: bool = True) -> None:
        plain = isinstance(tensor, torch.Tensor) and type(tensor) in (torch.Tensor, torch.nn.Parameter)
        if not plain or not tensor.is_floating_point() or tensor.layout != torch.strided or not tensor.numel():
            return
        frames = user_frames(sys._getframe(2), 1) if line else []
        if line and not frames:
            return
        key = f"{name} {tuple(tensor.shape)} {_call(frames[0]) if frames else ''}"
        self._count[key] += 1
        number = self._count[key] if self._numbered else 0
        draw = torch.Generator().manual_seed(zlib.crc32(f"{key} {number}".encode()))
        with torch.no_grad(), torch._C.DisableTorchFunction():
            # Not counted as a write: the program made none.
            data = tensor.data
            noise = torch.randn(data.shape, generator=draw, dtype=torch.float32).to(data.device, data.dtype)
            data.mul_(1 + RELATIVE * noise).add_(noise, alpha=ABSOLUTE)


def _call(frame: FrameType) -> str:
    """The text of the call that is being made, and its function."""
    place = place_in(frame.f_code, frame.f_lasti)
    line = source_line(place.path, place.line)
    end = place.end_column - 1 if place.end_line == place.line else len(line)
    within: FrameType | None = frame
    while within is not None and within.f_code.co_name in COMPREHENSIONS:
        within = within.f_back
    return f"{within.f_code.co_name if within is not None else ''} {line[place.column - 1 : end]}"


def _is_constant(tensor: torch.Tensor) -> bool:
    with torch.no_grad(), torch._C.DisableTorchFunction():
        return bool((tensor == tensor.flatten()[0]).all())


def _shifted(original: Any) -> Any:
    def seed(value: Any = None, *args: Any, **kwargs: Any) -> Any:
        shifted = value + OFFSET if isinstance(value, int) and not isinstance(value, bool) else value
        return original(shifted, *args, **kwargs)

    seed.__name__, seed.__doc__ = getattr(original, "__name__", "seed"), original.__doc__
    return seed


class _Random(random.Random):
    def __init__(self, x: Any = None) -> None:
        super().__init__(x + OFFSET if isinstance(x, int) else x)
