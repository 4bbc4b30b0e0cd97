"""What a run ends with: modules and optimizers that it used, variables of its script, what a function returned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from torchsan.fix.digests import digest
from torchsan.fix.observed import RESULT
from torchsan.fix.trial import Value, ValueKind
from torchsan.observe.patches import Patches

MOST_MODULES = 64
MOST_VALUES = 5_000
DEEPEST = 4


class Endings:
    """Keeps what is used until the end, so that it can be looked at then."""

    def __init__(self) -> None:
        self._modules: dict[int, torch.nn.Module] = {}
        self._optimizers: dict[int, torch.optim.Optimizer] = {}
        self._hook: Any = None
        # What was written to files by torch.save.
        self._saved: list[Value] = []
        self._patches = Patches()

    def start(self) -> None:
        self._hook = register_module_forward_pre_hook(self._called)
        original = torch.save

        def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
            self._saved.extend(values_in("variable", f"saved {len(self._saved)}", obj))
            return original(obj, *args, **kwargs)

        self._patches.set(torch, "save", save)

    def stop(self) -> None:
        self._hook.remove()
        self._patches.remove()

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizers.setdefault(id(optimizer), optimizer)

    def _called(self, module: torch.nn.Module, args: Any) -> None:
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
        if result is not None:
            yield from values_in("result", "result", result)

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
    elif depth < DEEPEST and isinstance(value, (list, tuple)):
        for number, inner in enumerate(value[:MOST_VALUES]):
            yield from values_in(kind, f"{name}[{number}]", inner, depth + 1)
