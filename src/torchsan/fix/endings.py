"""What a run ends with: modules and optimizers that it used, variables of its script, what a function returned."""

from __future__ import annotations

import contextlib
import hashlib
import random
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from torchsan.fix import observed
from torchsan.fix.digests import digest
from torchsan.fix.observed import RESULT
from torchsan.fix.trial import AUTOGRAD, Value, ValueKind
from torchsan.observe.patches import Patches
from torchsan.observe.sites import USER, kind_of, kind_of_path

MOST_MODULES = 64
MOST_VALUES = 5_000
MOST_FUNCTIONS = 20
DEEPEST = 4


class Endings:
    """Keeps what is used until the end, so that it can be looked at then."""

    def __init__(self) -> None:
        self._modules: dict[int, torch.nn.Module] = {}
        self._optimizers: dict[int, torch.optim.Optimizer] = {}
        self._hook: Any = None
        # Layers that write in place and were called.
        self._inplace: set[int] = set()
        # What was written to files by torch.save, and the variables of outermost functions at their end.
        self._saved: list[Value] = []
        self._left: dict[str, list[Value]] = {}
        self._patches = Patches()

    def start(self) -> None:
        observed.listen(self._ended)
        self._hook = register_module_forward_pre_hook(self._called)
        original = torch.save

        def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
            self._saved.extend(values_in("variable", f"saved {len(self._saved)}", obj))
            return original(obj, *args, **kwargs)

        self._patches.set(torch, "save", save)

    def stop(self) -> None:
        observed.listen(None)
        self._hook.remove()
        self._patches.remove()

    def _ended(self, name: str, variables: dict[str, Any]) -> None:
        if len(self._left) < MOST_FUNCTIONS and name not in self._left:
            pairs = sorted(variables.items())
            self._left[name] = [v for key, inner in pairs for v in values_in("variable", f"{name}().{key}", inner)]

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizers.setdefault(id(optimizer), optimizer)

    def _called(self, module: torch.nn.Module, args: Any) -> None:
        if getattr(module, "inplace", False) is True:
            self._inplace.add(id(module))
        if len(self._modules) < MOST_MODULES:
            self._modules.setdefault(id(module), module)

    def found(self, variables: dict[str, Any], result: Any) -> list[Value]:
        """Everything that can be compared, in an order that runs share."""
        values: list[Value] = []
        for value in self._all(variables, result):
            values.append(value)
            if len(values) >= MOST_VALUES:
                break
        return values

    def _all(self, variables: dict[str, Any], result: Any) -> Iterator[Value]:
        for number, module in enumerate(self._outermost()):
            yield from _tensors("parameter", f"{type(module).__name__} {number}", dict(module.named_parameters()))
            yield from _tensors("buffer", f"{type(module).__name__} {number}", dict(module.named_buffers()))
        for number, optimizer in enumerate(self._optimizers.values()):
            yield from _of_optimizer(f"{type(optimizer).__name__} {number}", optimizer)
        for name, value in sorted(variables.items()):
            if not name.startswith("_") or name.startswith(RESULT):
                yield from values_in("variable", name, value)
        yield from self._saved
        for left in self._left.values():
            yield from left
        yield from _random_states()
        if result is not None:
            yield from values_in("result", "result", result)

    def idle(self) -> list[tuple[str, str]]:
        """Layers that write in place, are part of what was used, and were never called: their kind and their path."""
        layers = {id(m): (name, m) for module in self._outermost() for name, m in module.named_modules()}
        return [
            (type(module).__name__, name)
            for key, (name, module) in layers.items()
            if getattr(module, "inplace", False) is True and key not in self._inplace
        ]

    def _outermost(self) -> list[torch.nn.Module]:
        inner = {id(m) for module in self._modules.values() for m in module.modules() if m is not module}
        return [module for key, module in self._modules.items() if key not in inner]


def _tensors(kind: ValueKind, prefix: str, tensors: dict[str, torch.Tensor]) -> Iterator[Value]:
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
            yield Value(kind, f"{prefix}.{name}", digest(tensor))


def _of_optimizer(name: str, optimizer: torch.optim.Optimizer) -> Iterator[Value]:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, parameter in enumerate(parameters):
        state = optimizer.state.get(parameter, {})
        yield from values_in("optimizer state", f"{name}.{number}", dict(state))
    for number, group in enumerate(optimizer.param_groups):
        plain = {key: value for key, value in group.items() if key != "params"}
        yield from values_in("optimizer state", f"{name}.group{number}", plain)


def values_in(kind: ValueKind, name: str, value: Any, depth: int = 0) -> Iterator[Value]:
    """Tensors, numbers and texts inside plain containers; what cannot be compared is left out."""
    if isinstance(value, torch.Tensor):
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            yield Value(kind, name, digest(value))
            yield from _seen_by_autograd(kind, name, value)
    elif isinstance(value, (bool, int, str, type(None))):
        yield Value(kind, name, repr(value)[:200])
    elif isinstance(value, float):
        yield Value(kind, name, digest(torch.tensor(value, dtype=torch.float64)))
    elif type(value).__name__ == "ndarray" and getattr(value, "dtype", None) is not None:
        if value.dtype.kind in "fiub":
            yield Value(kind, name, digest(torch.tensor(value)))
    elif depth < DEEPEST and isinstance(value, dict):
        for key, inner in list(value.items())[:MOST_VALUES]:
            if isinstance(key, (str, int)):
                yield from values_in(kind, f"{name}[{key!r}]", inner, depth + 1)
    elif depth < DEEPEST and isinstance(value, FunctionType) and kind_of(value.__code__) == USER:
        names = value.__code__.co_freevars
        for inner_name, cell in zip(names, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a cell that was never filled
                yield from values_in(kind, f"{name}.{inner_name}", cell.cell_contents, depth + 1)
    elif depth < DEEPEST and (isinstance(value, torch.nn.Module) or _is_of_program(value)):
        yield from _of_object(kind, name, value, depth)
    elif depth < DEEPEST and isinstance(value, (list, tuple)):
        for number, inner in enumerate(value[:MOST_VALUES]):
            yield from values_in(kind, f"{name}[{number}]", inner, depth + 1)


def _seen_by_autograd(kind: ValueKind, name: str, tensor: torch.Tensor) -> Iterator[Value]:
    try:
        leaf, kept = tensor.is_leaf, tensor.is_leaf or tensor.retains_grad
        gradient = tensor.grad if kept else None
    except RuntimeError:
        return  # a view that was written in a way that autograd refuses to look at
    if kind == "variable":
        own = tensor.requires_grad and leaf
        yield Value(kind, f"{name}{AUTOGRAD}", "takes a gradient of its own" if own else "takes none")
    if gradient is not None:
        yield Value(kind, f"{name}.grad", digest(gradient))


def _is_of_program(value: Any) -> bool:
    """A class that the program itself defines, or an object of one."""
    made = value if isinstance(value, type) else type(value)
    path = getattr(sys.modules.get(made.__module__), "__file__", None)
    own = made.__module__ == "__main__" or (isinstance(path, str) and kind_of_path(path) == USER)
    return own and (isinstance(value, type) or type(getattr(value, "__dict__", None)) is dict)


def _of_object(kind: ValueKind, name: str, value: Any, depth: int) -> Iterator[Value]:
    if isinstance(value, torch.nn.Module):
        for key, tensor in (*value.named_parameters(), *value.named_buffers()):
            if not isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
                yield Value(kind, f"{name}.{key}", digest(tensor))
    for key, inner in sorted(vars(value).items()):
        # Whether a layer works in place is how it computes, not what.
        how = key == "inplace" and isinstance(value, torch.nn.Module)
        if not key.startswith("_") and not how and not isinstance(inner, torch.nn.Module):
            yield from values_in(kind, f"{name}.{key}", inner, depth + 1)


def _random_states() -> Iterator[Value]:
    """Who draws once more than before changes everything that is drawn afterwards."""
    states = {"torch": torch.get_rng_state().numpy().tobytes(), "random": repr(random.getstate()).encode()}
    if "numpy.random" in sys.modules:
        states["numpy"] = repr(sys.modules["numpy"].random.get_state()[1:]).encode()
    for name, state in states.items():
        yield Value("variable", f"the state of {name}'s random numbers", hashlib.sha256(state).hexdigest())
