"""Are gradients the derivatives of the loss? Measured by computing the loss again beside the parameters.

At the start of each pass the process forks a twin that waits. When autograd has told its gradients, the twin forks
once for every question: the program goes on there from the same point, with the parameters moved a little just
before their first use, up to the loss. Nothing of the gradients' own machinery takes part.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from torchsan import compat
from torchsan.fix.directions import Asked, Use, directions, loss_of, told_by_autograd
from torchsan.fix.tape import among, asked_for, reach
from torchsan.fix.trial import LeafUses, Slope, Slopes
from torchsan.fix.twins import Question, Twin
from torchsan.observe.patches import Patches
from torchsan.observe.program import StopProgram

PASSES = 2
GROUPS = 6
LARGEST = 20_000_000
# Calls that take no value of a tensor.
NEUTRAL = {
    *("__get__", "__set__", "size", "dim", "numel", "requires_grad_", "detach", "register_hook", "is_floating_point"),
    *("__hash__", "__len__", "stride", "data_ptr", "element_size", "is_contiguous", "untyped_storage", "ndimension"),
    *("is_complex", "get_device", "zero_", "__repr__", "__format__", "retain_grad"),
}


class Meter(TorchFunctionMode):  # type: ignore[misc]
    """On while the program runs; ends it after the first passes."""

    def __init__(self, passes: int = PASSES) -> None:
        super().__init__()
        self.found: list[Slopes] = []
        self._limit = passes
        # Passes made so far: what is computed now belongs to the next.
        self._window = 0
        self._uses: dict[int, Use] = {}
        self._twins: dict[int, Twin] = {}
        self._opened = -1
        self._steps: dict[int, list[torch.Tensor]] = {}
        self._stepped = 0
        self._patches = Patches()
        self._hook: Any = None
        self._run: Any = None
        # Set in a process that answers one question.
        self._question: Question | None = None
        self._answer: Callable[[float], NoReturn] | None = None

    def start(self) -> None:
        torch.set_num_threads(1)
        self._run = torch.autograd._engine_run_backward
        self._patches.set(torch.autograd, "_engine_run_backward", self._backward)
        self._hook = register_optimizer_step_post_hook(self._step)
        self.__enter__()

    def stop(self) -> None:
        for twin in self._twins.values():
            twin.close()
        self.__exit__(None, None, None)
        self._hook.remove()
        self._patches.remove()

    def _open(self) -> None:
        """Fork as late as can be, when autograd is about to record the first leaf of a pass."""
        self._opened = self._window
        if self._question is None and hasattr(os, "fork") and threading.active_count() == 1:
            twin = Twin.forked(self)
            if twin is not None:
                self._twins[self._window] = twin

    def become(self, question: Question, answer: Callable[[float], NoReturn]) -> None:
        self._question, self._answer = question, answer

    def leave(self) -> None:
        """In a new process: the pipes to the others are not ours, and who waits for their end must see it."""
        for twin in self._twins.values():
            twin.forget()
        self._twins.clear()

    # -- uses ---------------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        used: list[Use] = []
        if name not in NEUTRAL:
            leaves = [v for v in _pytree.tree_leaves((args, kwargs)) if _is_leaf(v)]
            reads = not name.endswith("_") or name.endswith("__")
            if leaves and reads and self._opened != self._window and torch.is_grad_enabled():
                self._open()
            used = [self._used(leaf) for leaf in leaves]
            if torch.is_grad_enabled():
                for use in used:
                    use.graded.add(self._window)
        result = func(*args, **(kwargs or {}))
        if used and torch.is_grad_enabled() and _is_recorded(result):
            for use in used:
                use.recorded.setdefault(self._window, use.calls)
        return result

    def _used(self, leaf: torch.Tensor) -> Use:
        use = self._uses.get(id(leaf))
        if use is None:
            use = self._uses[id(leaf)] = Use(len(self._uses), leaf)
        use.calls += 1
        if self._opened == self._window:
            use.seen.setdefault(self._window, use.calls)
        moment, move = self._question.moves.get(use.number, (0, None)) if self._question is not None else (0, None)
        if move is not None and moment == use.calls:
            leaf.data.add_(move.to(leaf.device, leaf.dtype))
        return use

    def _step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if self._question is None:
            if sum(p.numel() for p in parameters) <= LARGEST:
                self._steps[self._stepped] = [p.detach().clone() for p in parameters]
        else:
            for parameter, value in zip(parameters, self._question.steps.get(self._stepped, ()), strict=False):
                parameter.data.copy_(value)
        self._stepped += 1

    @property
    def leaf_uses(self) -> list[LeafUses]:
        """For every pass, and for one that did not come to its backward."""
        found = []
        for window in range(self._window + 1):
            recorded = frozenset(use.number for use in self._uses.values() if window in use.recorded)
            seen = frozenset(use.number for use in self._uses.values() if window in use.seen)
            graded = frozenset(use.number for use in self._uses.values() if window in use.graded)
            found.append(LeafUses(graded, seen - recorded))
        return found

    # -- passes -------------------------------------------------------------------------------------

    def _backward(self, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [t for t in (outputs if isinstance(outputs, (tuple, list)) else (outputs,)) if torch.is_tensor(t)]
        if self._answer is not None and self._question is not None:
            if self._window == self._question.at:
                self._answer(loss_of(tensors, args[0] if args else None))
            self._window += 1
            return self._run(outputs, *args, **kwargs)
        leaves, _ = reach(tensors, weigh=False)
        asked = asked_for(args)
        leaves = among(leaves, asked)
        before = {id(leaf): None if leaf.grad is None else leaf.grad.detach().clone() for leaf in leaves}
        loss = loss_of(tensors, args[0] if args else None)
        result = self._run(outputs, *args, **kwargs)
        told = told_by_autograd(leaves, before, args, kwargs, result)
        self.found.append(self._measured(leaves, told, loss, others=not asked))
        if len(self.found) >= self._limit:
            raise StopProgram
        older = self._twins.pop(self._window - 1, None)
        if older is not None:
            older.close()
        self._window += 1
        return result

    def _measured(
        self, leaves: list[torch.Tensor], told: dict[int, torch.Tensor] | None, loss: float, *, others: bool
    ) -> Slopes:
        """`others`: leaves that the pass does not reach are looked at, too."""
        missed = sum(self._begun(leaf) is None for leaf in leaves)
        if told is None or missed:
            return Slopes((), max(1, missed))
        reached = {id(leaf) for leaf in leaves}
        uses = [u for u in self._uses.values() if id(u.leaf) in reached or (others and self._window in u.recorded)]
        if sum(use.leaf.numel() for use in uses) > LARGEST:
            return Slopes((), len(uses))
        found: list[Slope] = []
        try:
            for window, twin in list(self._twins.items()):
                for hit in (True, False):
                    some = [u for u in uses if self._begun(u.leaf) == window and (id(u.leaf) in reached) == hit]
                    for group in (some[n::GROUPS] for n in range(min(GROUPS, len(some)))):
                        asked = Asked(twin, group, window, self._window, self._steps, loss, reached=hit)
                        found += directions(asked, told)
            return Slopes(tuple(found), 0)
        except (OSError, EOFError, pickle.PickleError):
            return Slopes((), 1)

    def _begun(self, leaf: torch.Tensor) -> int | None:
        """The pass in which this leaf was used last, of those whose start is still at hand."""
        use = self._uses.get(id(leaf))
        for window in (self._window, self._window - 1):
            if use is not None and window in self._twins and use.moment(window) is not None:
                return window
        return None


def _is_leaf(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad and compat.is_leaf(value)


def _is_recorded(result: Any) -> bool:
    return any(isinstance(v, torch.Tensor) and compat.grad_fn_of(v) is not None for v in _pytree.tree_leaves(result))
