"""Which module is running: its path below the outermost one that was called."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch
from torch.nn.modules import module as module_hooks

from torchsan.observe.tensors import memory_of


class Owners:
    """Follows calls of modules by torch's own hooks for all of them. Threads have their own way down."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._paths: dict[int, tuple[weakref.ref[Any], dict[int, str]]] = {}
        self._handles: list[Any] = []

    def install(self) -> None:
        self._handles = [
            module_hooks.register_module_forward_pre_hook(self._enter),
            module_hooks.register_module_forward_hook(self._leave, always_call=True),
        ]

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @property
    def path(self) -> str:
        """The path of the innermost module that is running; empty outside of any."""
        stack = getattr(self._local, "stack", None)
        return stack[-1][1] if stack else ""

    def state(self) -> set[int]:
        """Memories of the parameters and buffers of every model that was called."""
        roots = [root for reference, _ in self._paths.values() if (root := reference()) is not None]
        found = {memory_of(tensor) for root in roots for tensor in (*root.parameters(), *root.buffers())}
        return {memory for memory in found if memory is not None}

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        stack = self._local.__dict__.setdefault("stack", [])
        root = stack[0][0] if stack else module
        known = self._paths_of(root).get(id(module))
        stack.append((module, known or f"{stack[-1][1]}.{type(module).__name__}" if stack else type(module).__name__))

    def _leave(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        stack = getattr(self._local, "stack", None)
        # A call that was left by an exception may have left others above it.
        while stack:
            if stack.pop()[0] is module:
                return

    def _paths_of(self, root: torch.nn.Module) -> dict[int, str]:
        known = self._paths.get(id(root))
        if known is not None and known[0]() is root:
            return known[1]
        name = type(root).__name__
        paths = {id(module): f"{name}.{path}" if path else name for path, module in root.named_modules()}
        self._paths[id(root)] = (weakref.ref(root), paths)
        return paths
