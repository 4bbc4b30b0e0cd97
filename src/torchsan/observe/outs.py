"""Finds which torch functions the program calls with `out=`, so that only those need watching.

Wrapping every function that could take `out=` would cost each call a little and change the identity of
functions that tensor subclasses dispatch on. Keyword names stand in the code objects, so it is cheap to
see which functions a module uses that way at all.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import torch

from torchsan.observe.objects import attributes_of, class_members, is_a, is_exactly
from torchsan.observe.patches import Patches
from torchsan.observe.sites import USER, kind_of_path


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def names_called_with_out(code: CodeType) -> set[str]:
    """Names used in functions that pass a keyword `out`."""
    found: set[str] = set()
    for part in _codes(code):
        # Names of keywords come in a tuple, or one by one beside `*args`.
        if any(c == "out" if type(c) is str else type(c) is tuple and "out" in c for c in part.co_consts):
            found.update(part.co_names)
    return found


class OutFinder:
    def __init__(self, watch: Callable[[Any, str], None]) -> None:
        self._watch = watch
        self._homes = [torch, torch.linalg, torch.special]

    def install(self, patches: Patches) -> None:
        for module in list(sys.modules.values()):
            # What stands in `sys.modules` need not be a module.
            names = attributes_of(module) if is_a(module, ModuleType) else {}
            path = names.get("__file__")
            if type(path) is str and kind_of_path(path) == USER:
                self._look_at_module(names)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if kind_of_path(frame.f_code.co_filename) == USER:
                self.look_at(frame.f_code)
            frame = frame.f_back
        original = importlib.machinery.SourceFileLoader.get_code

        def get_code(loader: Any, name: str) -> CodeType | None:
            code = original(loader, name)
            if code is not None and kind_of_path(code.co_filename) == USER:
                self.look_at(code)
            return code

        patches.set(importlib.machinery.SourceFileLoader, "get_code", get_code)

    def look_at(self, code: CodeType) -> None:
        for name in names_called_with_out(code):
            for home in self._homes:
                function = getattr(home, name, None)
                if callable(function) and not isinstance(function, type):
                    self._watch(home, name)

    def _look_at_module(self, names: dict[str, Any]) -> None:
        for value in names.values():
            members = list(class_members(value).values()) if is_a(value, type) else [value]
            for member in members:
                function = member.__func__ if is_exactly(member, (staticmethod, classmethod)) else member
                # Code of another module has its own turn there; names of modules can be anything.
                if type(function) is FunctionType and kind_of_path(function.__code__.co_filename) == USER:
                    self.look_at(function.__code__)
