"""Are gradients the derivatives of the loss? Measured by computing the loss again beside the parameters.

At the start of each pass the process forks a twin that waits. When autograd has told its gradients, the twin forks
once for every question: the program goes on there from the same point, with the parameters moved a little just
before their first use, up to the loss. Nothing of the gradients' own machinery takes part.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from torchsan.fix.tape import reach
from torchsan.fix.trial import Slope, Slopes
from torchsan.observe.patches import Patches
from torchsan.observe.program import StopProgram

PASSES = 2
GROUPS = 6
# Steps, relative to the length of the parameters.
STEPS = (1e-2, 1e-3, 3e-2, 1e-4)
RELATIVE = 0.02
ROUNDING = 16.0
LARGEST = 20_000_000
# Calls that take no value of a tensor.
NEUTRAL = {
    *("__get__", "__set__", "size", "dim", "numel", "requires_grad_", "detach", "register_hook", "is_floating_point"),
    *("__hash__", "__len__", "stride", "data_ptr", "element_size", "is_contiguous", "untyped_storage", "ndimension"),
    *("is_complex", "get_device", "zero_", "__repr__", "__format__", "retain_grad"),
}


@dataclass(slots=True)
class Use:
    """A leaf: the how-manieth, how often it was used, and in which call of each pass autograd recorded it first."""

    number: int
    leaf: torch.Tensor
    calls: int = 0
    recorded: dict[int, int] = field(default_factory=dict)
    # The first call of each pass, for leaves that custom functions hide from autograd.
    seen: dict[int, int] = field(default_factory=dict)

    def moment(self, window: int) -> int | None:
        return self.recorded.get(window, self.seen.get(window))


@dataclass(frozen=True, slots=True)
class Question:
    """Move these leaves by these amounts, each in this call: what is the loss of this pass?

    Steps on the way leave parameters at the values of the first process: gradients take them as given.
    """

    moves: dict[int, tuple[int, torch.Tensor]]
    at: int
    steps: dict[int, list[torch.Tensor]]


class Meter(TorchFunctionMode):  # type: ignore[misc]
    """On while the program runs; ends it after the first passes."""

    def __init__(self, passes: int = PASSES) -> None:
        super().__init__()
        self.found: list[Slopes] = []
        self._limit = passes
        # Passes made so far: what is computed now belongs to the next.
        self._window = 0
        self._uses: dict[int, Use] = {}
        self._twins: dict[int, _Twin] = {}
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
            twin = _Twin.forked(self)
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

    # -- passes -------------------------------------------------------------------------------------

    def _backward(self, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [t for t in (outputs if isinstance(outputs, (tuple, list)) else (outputs,)) if torch.is_tensor(t)]
        if self._answer is not None and self._question is not None:
            if self._window == self._question.at:
                self._answer(_loss(tensors, args[0] if args else None))
            self._window += 1
            return self._run(outputs, *args, **kwargs)
        leaves, _ = reach(tensors, weigh=False)
        before = {id(leaf): None if leaf.grad is None else leaf.grad.detach().clone() for leaf in leaves}
        loss = _loss(tensors, args[0] if args else None)
        result = self._run(outputs, *args, **kwargs)
        told = _told(leaves, before, args, kwargs, result)
        self.found.append(self._measured(leaves, told, loss))
        if len(self.found) >= self._limit:
            raise StopProgram
        older = self._twins.pop(self._window - 1, None)
        if older is not None:
            older.close()
        self._window += 1
        return result

    def _measured(self, leaves: list[torch.Tensor], told: dict[int, torch.Tensor] | None, loss: float) -> Slopes:
        missed = sum(self._begun(leaf) is None for leaf in leaves)
        if told is None or missed:
            return Slopes((), max(1, missed))
        reached = {id(leaf) for leaf in leaves}
        uses = [u for u in self._uses.values() if id(u.leaf) in reached or self._window in u.recorded]
        if sum(use.leaf.numel() for use in uses) > LARGEST:
            return Slopes((), len(uses))
        found: list[Slope] = []
        try:
            for window, twin in list(self._twins.items()):
                for hit in (True, False):
                    some = [u for u in uses if self._begun(u.leaf) == window and (id(u.leaf) in reached) == hit]
                    for group in (some[n::GROUPS] for n in range(min(GROUPS, len(some)))):
                        asked = _Asked(twin, group, window, self._window, self._steps, loss, reached=hit)
                        found += _directions(asked, told)
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


@dataclass(frozen=True, slots=True)
class _Asked:
    """Some leaves, and the process that can tell what the loss is beside them."""

    twin: _Twin
    group: list[Use]
    window: int
    at: int
    steps: dict[int, list[torch.Tensor]]
    loss: float
    reached: bool

    def value(self, amounts: list[torch.Tensor]) -> float:
        pairs = zip(self.group, amounts, strict=True)
        moves = {use.number: (use.moment(self.window) or 0, amount) for use, amount in pairs}
        return self.twin.ask(Question(moves, self.at, self.steps if self.window != self.at else {}))


def _is_leaf(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad


def _is_recorded(result: Any) -> bool:
    return any(isinstance(v, torch.Tensor) and v.grad_fn is not None for v in _pytree.tree_leaves(result))


def _loss(tensors: list[torch.Tensor], given: Any) -> float:
    """The number whose derivative a backward computes."""
    weights = given if isinstance(given, (tuple, list)) else (given,)
    total = 0.0
    with torch.no_grad():
        for number, tensor in enumerate(tensors):
            weight = weights[number] if number < len(weights) else None
            value = (
                tensor.detach().to(torch.float64) if not tensor.is_complex() else torch.view_as_real(tensor.detach())
            )
            if isinstance(weight, torch.Tensor) and not tensor.is_complex():
                value = value * weight.detach().to(torch.float64)
            total += float(value.sum())
    return total


def _told(
    leaves: list[torch.Tensor], before: dict[int, Any], args: Any, kwargs: Any, result: Any
) -> dict[int, torch.Tensor] | None:
    """What autograd says of each leaf; None where it was asked for something else than gradients of leaves."""
    if kwargs.get("accumulate_grad", True):
        found = {}
        for leaf in leaves:
            if leaf.grad is not None and leaf.layout == leaf.grad.layout == torch.strided and not leaf.is_complex():
                now = leaf.grad.detach()
                old = before[id(leaf)]
                found[id(leaf)] = (now - old if old is not None else now).to(torch.float64).clone()
        return found
    inputs = args[3] if len(args) > 3 else ()
    if not all(torch.is_tensor(t) and t.is_leaf for t in inputs) or not isinstance(result, (tuple, list)):
        return None
    pairs = zip(inputs, result, strict=False)
    return {id(leaf): g.detach().to(torch.float64).clone() for leaf, g in pairs if g is not None}


def _directions(asked: _Asked, told: dict[int, torch.Tensor]) -> list[Slope]:
    """The slope along the gradient that was told, and along a direction drawn at random."""
    zeros = (torch.zeros(use.leaf.shape, dtype=torch.float64) for use in asked.group)
    gradients = [told.get(id(use.leaf), zero) for use, zero in zip(asked.group, zeros, strict=True)]
    draw = torch.Generator().manual_seed(asked.group[0].number)
    drawn = [torch.randn(g.shape, generator=draw, dtype=torch.float64) for g in gradients]
    found = []
    steepest = sum(float(g.pow(2).sum()) for g in gradients) ** 0.5
    for direction in (gradients, drawn):
        length = sum(float(d.pow(2).sum()) for d in direction) ** 0.5
        if 0 < length < float("inf"):
            unit = [d / length for d in direction]
            slope = sum(float((g * d).sum()) for g, d in zip(gradients, unit, strict=True))
            found.append(_slope(asked, unit, slope, gradient=steepest, drawn=direction is drawn))
    return found


def _slope(asked: _Asked, unit: list[torch.Tensor], told: float, *, gradient: float, drawn: bool) -> Slope:
    group = asked.group
    size = sum(float(use.leaf.detach().to(torch.float64).pow(2).sum()) for use in group) ** 0.5
    rounding = ROUNDING * max(torch.finfo(use.leaf.dtype).eps for use in group) * max(abs(asked.loss), 1e-3)
    measured = float("nan")
    for relative in STEPS:
        step = relative * max(size, 1.0)
        ends = [asked.value([sign * step * part for part in unit]) for sign in (1.0, -1.0)]
        measured = (ends[0] - ends[1]) / (2 * step)
        noise = rounding / step
        largest = max(abs(told), abs(measured))
        near = abs(measured - told) <= RELATIVE * largest + noise
        # Rounding may hide a small slope, but not the one along the gradient itself, unless there is none.
        if near and (noise <= 0.2 * largest or largest <= 2 * noise or (drawn and noise <= 0.2 * gradient)):
            return Slope(len(group), told, measured, True, asked.reached)
    return Slope(len(group), told, measured, False, asked.reached)


class _Twin:
    """A copy of the process at the start of a pass, and the pipes to it."""

    def __init__(self, pid: int, ask: int, answer: int) -> None:
        self._pid = pid
        self._ask = os.fdopen(ask, "wb")
        self._answer = os.fdopen(answer, "rb")

    @classmethod
    def forked(cls, meter: Meter) -> _Twin | None:
        """In the first process the twin; in a process that a question made, nothing: it goes on with the program."""
        sys.stdout.flush()
        asked, ask = os.pipe()
        answer, answered = os.pipe()
        pid = os.fork()
        if pid:
            os.close(asked)
            os.close(answered)
            return cls(pid, ask, answer)
        os.close(ask)
        os.close(answer)
        meter.leave()
        _serve(meter, asked, answered)
        return None

    def ask(self, question: Question) -> float:
        pickle.dump(question, self._ask)
        self._ask.flush()
        return float(pickle.load(self._answer))

    def close(self) -> None:
        self.forget()
        os.waitpid(self._pid, 0)

    def forget(self) -> None:
        for file in (self._ask, self._answer):
            with contextlib.suppress(OSError):
                file.close()


def _serve(meter: Meter, asked: int, answered: int) -> None:
    """Wait for questions; each is answered by a child, in which alone this function returns."""
    with os.fdopen(asked, "rb") as questions, os.fdopen(answered, "wb") as answers:
        while True:
            try:
                question = pickle.load(questions)
            except (EOFError, OSError):
                os._exit(0)
            inner, outer = os.pipe()
            pid = os.fork()
            if not pid:
                break
            os.close(outer)
            with os.fdopen(inner, "rb") as told:
                text = told.read()
            os.waitpid(pid, 0)
            pickle.dump(float(text or b"nan"), answers)
            answers.flush()
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)

    def answer(value: float) -> NoReturn:
        os.write(outer, repr(value).encode())
        os._exit(0)

    meter.become(question, answer)
