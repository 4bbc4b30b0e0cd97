"""Calls back when the program imports a module, so that nothing is imported before it is needed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

Around = Callable[[], AbstractContextManager[None]]


class _Finder(MetaPathFinder):
    def __init__(self, name: str, callback: Callable[[], None], around: Around) -> None:
        self._name = name
        self._callback = callback
        self._around = around

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader, callback, around = spec.loader, self._callback, self._around
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with around():
                execute(module)
            callback()

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def after_import(name: str, callback: Callable[[], None], around: Around = nullcontext) -> None:
    """Call back once the module is there: now, if it is already."""
    if name in sys.modules:
        callback()
    else:
        sys.meta_path.insert(0, _Finder(name, callback, around))


# Who is told when a module is imported: of each kind whoever asked last; recorders that are gone leave nothing behind.
_listeners: dict[tuple[str, str], tuple[Callable[[], None], Around]] = {}


def when_imported(name: str, callback: Callable[[], None], around: Around = nullcontext) -> None:
    """Like `after_import`, for things that are made anew again and again: only the latest of a kind is told.

    `around`: what the module is imported under, where that is to see torch as it is without us.
    """
    key = name, getattr(callback, "__qualname__", "")
    waiting = key in _listeners
    _listeners[key] = callback, around
    if name in sys.modules:
        callback()
    elif not waiting:
        after_import(name, lambda: _listeners[key][0](), lambda: _listeners[key][1]())
