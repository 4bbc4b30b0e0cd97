"""The run in which a refused write of a leaf makes a new value: autograd follows it, and the leaf keeps its own."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch
from torch.utils import _pytree

from torchsan.fix.forwards import DEEP, leaf_of
from torchsan.fix.literal import Literal, writes
from torchsan.observe.patches import Patches
from torchsan.observe.sites import user_frames

# What is asked of the leaf itself, not of its value.
OF_THE_LEAF = {torch.Tensor.grad, torch.Tensor.requires_grad, torch.Tensor.is_leaf}
NEUTRAL = {"requires_grad_", "register_hook", "retain_grad", "__hash__", "register_post_accumulate_grad_hook"}


class Fresh(Literal):
    """Until the forward ends that wrote it, the leaf stands for its new value, wherever it is used."""

    def __init__(self) -> None:
        super().__init__()
        self._instead: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        # By line: the call that wrote there last.
        self._calls: dict[tuple[Any, int], FrameType | None] = {}
        # The forward that is being made.
        self._forward: FrameType | None = None
        self._engine = Patches()

    def start(self) -> None:
        run = torch.autograd._engine_run_backward

        def backward(*args: Any, **kwargs: Any) -> Any:
            self._clear()
            return run(*args, **kwargs)

        self._engine.set(torch.autograd, "_engine_run_backward", backward)
        super().start()

    def stop(self) -> None:
        super().stop()
        self._engine.remove()
        self._clear()

    def _clear(self) -> None:
        self._instead.clear()
        self._calls = dict.fromkeys(self._calls)
        self._forward = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._forward is not None and not _is_running(self._forward):
            self._clear()
        leaf = leaf_of(args[0]) if writes(func, args) else None
        if leaf is not None and self._is_known(leaf):
            # Also where gradients are off: it is the line that means a new value.
            return self._unseen(func, args, kwargs or {})
        if self._instead and not self._is_of_the_leaf(func):
            args, kwargs = _pytree.tree_map(self._in_its_place, (args, kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)

    def _is_known(self, leaf: torch.Tensor) -> bool:
        """A line that was refused before; in another call than then it begins anew."""
        line, frame = _line()
        if line not in self._calls:
            return False
        if self._calls[line] is not frame:
            self._instead.pop(id(leaf), None)
        return True

    def _is_of_the_leaf(self, func: Any) -> bool:
        return getattr(func, "__name__", "") in NEUTRAL or getattr(func, "__self__", None) in OF_THE_LEAF

    def _in_its_place(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        known = self._instead.get(id(value))
        if known is not None and known[0] is value:
            return known[1]
        leaf = leaf_of(value)
        known = self._instead.get(id(leaf)) if leaf is not None else None
        return _same_view(value, leaf, known[1]) if known is not None and leaf is not None else value

    def _unseen(self, func: Any, args: Any, kwargs: Any) -> Any:
        leaf = leaf_of(args[0]) if args else None
        if leaf is None:
            return super()._unseen(func, args, kwargs)
        self.made += 1
        line, frame = _line()
        self._calls[line] = frame
        self._forward = self._forward or _forward_of(frame)
        written, others = args[0], _pytree.tree_map(self._in_its_place, args[1:])
        known = self._instead.get(id(leaf))
        copy = known[1].clone() if known is not None else leaf.clone()
        view = copy if written is leaf else _same_view(written, leaf, copy)
        result = func(view, *others, **kwargs)
        self._instead[id(leaf)] = (leaf, copy)
        return view if isinstance(result, torch.Tensor) else result

    def assigned(self, leaf: torch.Tensor, value: torch.Tensor) -> None:
        self._forward = self._forward or _forward_of(_line()[1])
        self._instead[id(leaf)] = (leaf, value)


def _same_view(view: torch.Tensor, leaf: torch.Tensor, copy: torch.Tensor) -> torch.Tensor:
    start = view.storage_offset() - leaf.storage_offset() + copy.storage_offset()
    return copy.as_strided(view.shape, view.stride(), start)


def _line() -> tuple[tuple[Any, int], Any]:
    frames = user_frames(sys._getframe(2), 1)
    return ((frames[0].f_code, frames[0].f_lineno), frames[0]) if frames else ((None, 0), None)


def _is_running(wanted: FrameType) -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame is not wanted:
        frame = frame.f_back
    return frame is not None


def _forward_of(writer: FrameType | None) -> FrameType | None:
    """The outermost call of a module that leads to the write; without one the call that writes."""
    frames = user_frames(writer, DEEP)
    methods = [frame for frame in frames if isinstance(frame.f_locals.get("self"), torch.nn.Module)]
    return methods[-1] if methods else writer
