"""Places outside the module in which a model can keep state: globals, closures, mutable defaults."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from types import CellType, CodeType, FrameType, FunctionType, ModuleType
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

    @property
    def key(self) -> object:
        return (id(self.names), self.name) if self.names is not None else id(self.cell or self.container)

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
        elif isinstance(current, torch.Tensor) and isinstance(fresh, torch.Tensor) and current.shape == fresh.shape:
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


def slots_of(code: CodeType, names: dict[str, Any], function: FunctionType | None) -> Iterator[Slot]:
    """Everything that a piece of code names outside itself and that could hold state."""
    for name in code.co_names:
        if name in names and not isinstance(names[name], _CONSTANT):
            yield Slot(name, names=names)
    if function is not None:
        yield from _of_function(code, function)


def _of_function(code: CodeType, function: FunctionType) -> Iterator[Slot]:
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            value = cell.cell_contents
        except ValueError:
            continue
        if not isinstance(value, _CONSTANT):
            yield Slot(name, cell=cell)
    defaults = function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    for name, value in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=False):
        if isinstance(value, list | dict | set | torch.Tensor):
            yield Slot(name, container=value)


def function_of(frame: FrameType) -> FunctionType | None:
    """The function that a frame runs, looked for where functions usually are."""
    code = frame.f_code
    candidates = [frame.f_globals.get(code.co_name)]
    if code.co_argcount and code.co_varnames:
        owner = type(frame.f_locals.get(code.co_varnames[0]))
        candidates.append(getattr(owner, code.co_name, None))
    if code.co_freevars:
        # A closure has no name of its own: ask who holds its code.
        candidates += gc.get_referrers(code)
    for candidate in candidates:
        function = getattr(candidate, "__wrapped__", candidate)
        if isinstance(function, FunctionType) and function.__code__ is code:
            return function
    return None
