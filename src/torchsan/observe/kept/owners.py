"""Which module is running: its path below the outermost one that was called."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch.nn.modules import module as module_hooks

from torchsan.observe.objects import attributes_of
from torchsan.observe.sites import USER, kind_of, place_in
from torchsan.observe.tensors import memory_of


@dataclass(slots=True)
class Use:
    """How one module was used."""

    kind: str
    call: tuple[str, int, int, int, int] | tuple[()]
    inplace: bool | None
    calls: int = 0
    seconds: float = 0.0


def _use(module: torch.nn.Module, frame: FrameType | None) -> Use:
    while frame is not None and frame.f_code.co_filename == module_hooks.__file__:
        frame = frame.f_back
    call: tuple[str, int, int, int, int] | tuple[()] = ()
    if frame is not None and kind_of(frame.f_code) == USER:
        place = place_in(frame.f_code, frame.f_lasti)
        call = (frame.f_code.co_filename, place.line, place.column, place.end_line, place.end_column)
    inplace = attributes_of(module).get("inplace")
    return Use(type(module).__name__, call, inplace if type(inplace) is bool else None)


class Owners:
    """Follows calls of modules by torch's own hooks for all of them. Threads have their own way down.

    The hooks are there for the steps that are followed and no others: for a module with none, torch has a shorter way.
    torch copies its list of them before it goes through it, so they may come and go while modules run.
    """

    def __init__(self) -> None:
        self._local = threading.local()
        self._following = 0  # a number for each stretch that is followed; 0 between them
        self._stretches = 0
        self._paths: dict[int, tuple[weakref.ref[Any], dict[int, str]]] = {}
        self._handles: list[Any] = []
        self.uses: dict[str, Use] = {}

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def follow(self, on: bool) -> None:
        if on is bool(self._following):
            return
        if on:
            self._stretches += 1
            self._handles = [
                module_hooks.register_module_forward_pre_hook(self._enter),
                module_hooks.register_module_forward_hook(self._leave, always_call=True),
            ]
        else:
            self.close()
        self._following = self._stretches if on else 0

    @property
    def path(self) -> str:
        """The path of the innermost module that is running; empty outside of any."""
        stack = self._stack()
        return stack[-1][1] if stack else ""

    def _stack(self) -> list[Any]:
        """Modules of this thread that are running; what was entered in a stretch before is forgotten."""
        local = self._local.__dict__
        if local.get("stretch") != self._following:
            local["stretch"], local["stack"] = self._following, []
        stack: list[Any] = local["stack"]
        return stack

    def state(self) -> set[int]:
        """Memories of the parameters and buffers of every model that was called."""
        found: set[int | None] = set()
        for reference, _ in self._paths.values():
            root = reference()
            for module in root.modules() if root is not None else ():
                for held in (module._parameters, module._buffers):
                    found.update(memory_of(tensor) for tensor in held.values() if tensor is not None)
        return {memory for memory in found if memory is not None}

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        if not self._following:
            return
        stack = self._stack()
        root = stack[0][0] if stack else module
        known = self._paths_of(root).get(id(module))
        path = known or (f"{stack[-1][1]}.{type(module).__name__}" if stack else type(module).__name__)
        use = self.uses.get(path)
        if use is None:
            use = self.uses[path] = _use(module, sys._getframe(1))
        stack.append((module, path, use, time.perf_counter()))

    def _leave(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        if not self._following:
            return
        stack = self._stack()
        if not any(one[0] is module for one in stack):
            return  # entered while nobody followed
        # A call that was left by an exception may have left others above it.
        while stack:
            entered, _, use, began = stack.pop()
            if entered is module:
                use.calls += 1
                use.seconds += time.perf_counter() - began
                return

    def _paths_of(self, root: torch.nn.Module) -> dict[int, str]:
        known = self._paths.get(id(root))
        if known is not None and known[0]() is root:
            return known[1]
        name = type(root).__name__
        paths = {id(module): f"{name}.{path}" if path else name for path, module in root.named_modules()}
        self._paths[id(root)] = (weakref.ref(root), paths)
        return paths
