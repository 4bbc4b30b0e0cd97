"""Refused writes of leaves that are made anew for every pass: what does such a line mean?

`q += code` in a forward may mean that the parameter changes for good, or that what is computed from it goes on. A run
in which the write is made as it stands knows the first meaning only, and so is no measure of the second. Which writes
these are is told by the run: the written leaf is used for the loss within the call that wrote it, and that again and
again; an update by hand comes after a backward, a start value is written once.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _pytree

from torchsan import compat
from torchsan.fix.holding import path_of
from torchsan.fix.tape import reach
from torchsan.observe.patches import Patches
from torchsan.observe.sites import user_frames

Place = tuple[str, int]
# value: each pass computes with a new value, and an optimizer has the leaf: it is the value that is meant.
# unclear: a change for good may be meant as well.
Meaning = Literal["value", "unclear"]
DEEP = 64


@dataclass(slots=True, eq=False)
class _Write:
    """One line that writes one leaf."""

    leaf: torch.Tensor
    place: Place
    # Of the last write: the calls it was made in, innermost first, and the innermost of them that then used the leaf.
    frames: list[FrameType] = field(default_factory=list)
    user: FrameType | None = None
    # Passes by number: written within a call that then computed with it and ended before the backward, or otherwise.
    inside: set[int] = field(default_factory=set)
    beside: set[int] = field(default_factory=set)
    # Passes that reached the leaf without this write.
    without: int = 0
    # Written twice it has another value than written once, and each pass writes with the same numbers.
    moves: bool = False
    given: list[Any] | None = None
    varies: bool = False


class Forwards:
    """Told of each refused write of a leaf, and of each call while one of them waits for a use of its leaf."""

    def __init__(self) -> None:
        self._writes: dict[tuple[Place, int], _Write] = {}
        self._open: list[_Write] = []
        self._used: list[_Write] = []
        self._pass = 0
        self._stepped: set[int] = set()
        self._patches = Patches()
        self._hook: Any = None

    def start(self) -> None:
        run = torch.autograd._engine_run_backward

        def backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            self._end_of_pass(outputs)
            return run(outputs, *args, **kwargs)

        self._patches.set(torch.autograd, "_engine_run_backward", backward)
        self._hook = register_optimizer_step_pre_hook(self._step)

    def stop(self) -> None:
        self._patches.remove()
        self._hook.remove()
        self._forget()

    def written(self, leaf: torch.Tensor, given: Any, *, moves: bool) -> None:
        """`given`: what is written into it."""
        frames = user_frames(sys._getframe(2), DEEP)
        if not frames:
            return
        place = (path_of(frames[0]), frames[0].f_lineno)
        write = self._writes.setdefault((place, id(leaf)), _Write(leaf, place))
        write.frames, write.moves = frames, write.moves or moves
        values = [_kept(v) for v in _pytree.tree_leaves(given)]
        write.varies = write.varies or (write.given is not None and not _same(write.given, values))
        write.given = values
        if write not in self._open:
            self._open.append(write)

    def called(self, args: Any, result: Any) -> None:
        """Does this call compute something with a leaf that was written in this pass?"""
        if not self._open or not torch.is_grad_enabled():
            return
        given = [v for v in _pytree.tree_leaves(args) if isinstance(v, torch.Tensor)]
        if not any(compat.grad_fn_of(v) is not None for v in _pytree.tree_leaves(result) if torch.is_tensor(v)):
            return
        for write in [w for w in self._open if any(v is w.leaf or v._base is w.leaf for v in given)]:
            now = {id(frame) for frame in user_frames(sys._getframe(2), DEEP)}
            write.user = next((frame for frame in write.frames if id(frame) in now), None)
            write.frames = []
            self._open.remove(write)
            self._used.append(write)

    def found(self) -> dict[Place, Meaning]:
        known: dict[Place, Meaning] = {}
        for write in self._writes.values():
            meaning = self._meaning(write)
            if meaning is not None:
                known[write.place] = meaning if known.get(write.place, meaning) == meaning else "unclear"
        # What is written in several steps is one update.
        unclear = {id(write.leaf) for write in self._writes.values() if known.get(write.place) == "unclear"}
        both = {write.place for write in self._writes.values() if id(write.leaf) in unclear and write.place in known}
        return {**known, **dict.fromkeys(both, "unclear")}

    def _meaning(self, write: _Write) -> Meaning | None:
        if write.inside:
            if len(write.inside) == 1 and write.without:
                return None  # once, and then used as it is: a start value
            again = len(write.inside) > 1 and not write.without and not write.beside
            # What differs from pass to pass may be gathered: an average, a state.
            same = write.moves and not write.varies
            return "value" if again and same and id(write.leaf) in self._stepped else "unclear"
        # An update by hand has no gradient to work with before the first pass.
        return "unclear" if 0 in write.beside and len(write.beside) > 1 else None

    def _end_of_pass(self, outputs: Any) -> None:
        if self._writes:
            tensors = [t for t in (outputs if isinstance(outputs, (tuple, list)) else (outputs,)) if torch.is_tensor(t)]
            reached = {id(leaf) for leaf in reach(tensors, weigh=False)[0]}
            running = {id(frame) for frame in user_frames(sys._getframe(2), DEEP)}
            for write in self._writes.values():
                if id(write.leaf) in reached and write not in self._used:
                    write.without += 1
            for write in self._used:
                if id(write.leaf) in reached:
                    ended = write.user is not None and id(write.user) not in running
                    (write.inside if ended else write.beside).add(self._pass)
        self._forget()
        self._pass += 1

    def _forget(self) -> None:
        for write in self._writes.values():
            write.frames, write.user = [], None
        self._open.clear()
        self._used.clear()

    def _step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._stepped.update(id(p) for group in optimizer.param_groups for p in group["params"])


def leaf_of(tensor: Any) -> torch.Tensor | None:
    """The leaf that a write to this tensor changes: itself, or that of which it is a view."""
    for one in (tensor, getattr(tensor, "_base", None)):
        if isinstance(one, torch.Tensor) and one.requires_grad and compat.is_leaf(one):
            return one
    return None


def moves(func: Any, written: torch.Tensor, args: Any, kwargs: Any) -> bool:
    """Is the value another one if the write is made twice? A bound, a mask or a new value is not."""
    state = torch.get_rng_state()
    values = []
    try:
        with torch.no_grad(), torch._C.DisableTorchFunction():
            copy = written.detach().clone()
            for _ in range(2):
                torch.set_rng_state(state)
                func(copy, *args, **kwargs)
                values.append(copy.clone())
    except Exception:
        return False
    finally:
        torch.set_rng_state(state)
    return not torch.equal(*values)


def _kept(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _same(before: list[Any], now: list[Any]) -> bool:
    with torch._C.DisableTorchFunction():
        for a, b in zip(before, now, strict=False):
            tensors = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
            if (tensors and not (a.shape == b.shape and torch.equal(a, b))) or (not tensors and a != b):
                return False
    return len(before) == len(now)
