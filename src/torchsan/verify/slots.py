"""Places outside the module in which a model can keep state: globals, closures, mutable defaults."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import torch

_CONSTANT = (FunctionType, ModuleType, type, torch.nn.Module)


@dataclass(frozen=True)
class Slot:
    """A name that can be read and set, wherever it lives."""

    name: str
    names: dict[str, Any] | None = None
    cell: CellType | None = None
    container: Any = None

    def get(self) -> Any:
        if self.names is not None:
            return self.names.get(self.name)
        return self.cell.cell_contents if self.cell is not None else self.container

    def put_back(self, value: Any) -> None:
        """Containers are refilled, so that other names for them see it too."""
        current, fresh = self.get(), copied(value)
        if isinstance(current, list) and isinstance(fresh, list):
            current[:] = fresh
        elif isinstance(current, dict | set) and isinstance(fresh, dict | set):
            current.clear()
            current.update(fresh)
        elif (
            isinstance(current, torch.Tensor)
            and isinstance(fresh, torch.Tensor)
            and current.shape == fresh.shape
        ):
            with torch.no_grad():
                current.copy_(fresh)
        elif self.names is not None:
            self.names[self.name] = fresh
        elif self.cell is not None:
            self.cell.cell_contents = fresh


def copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


def slots_of(codes: dict[CodeType, dict[str, Any]]) -> list[Slot]:
    """Everything that the given code names and that could hold state."""
    found: dict[object, Slot] = {}
    for code, names in codes.items():
        for name in code.co_names:
            if name in names and not isinstance(names[name], _CONSTANT):
                found[id(names), name] = Slot(name, names=names)
        for slot in _of_functions(code):
            found[id(slot.cell or slot.container)] = slot
    return list(found.values())


def _of_functions(code: CodeType) -> Iterator[Slot]:
    if not code.co_freevars and not code.co_argcount:
        return
    for function in gc.get_referrers(code):
        if not isinstance(function, FunctionType):
            continue
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            if not isinstance(value, _CONSTANT):
                yield Slot(name, cell=cell)
        defaults = function.__defaults__ or ()
        arguments = code.co_varnames[: code.co_argcount]
        for name, value in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True):
            if isinstance(value, list | dict | set | torch.Tensor):
                yield Slot(name, container=value)
