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
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
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
    """A leaf that a pass uses: the how-manieth, how often, and in which call autograd recorded it first."""

    number: int
    leaf: torch.Tensor
    calls: int = 0
    recorded: int | None = None
    # The first call since the process forked, for leaves that custom functions hide from autograd.
    seen: int | None = None

    @property
    def moment(self) -> int:
        return self.recorded if self.recorded is not None else self.seen or 0


@dataclass(frozen=True, slots=True)
class Question:
    """Move these leaves by these amounts, each in this call: what is the loss?"""

    moves: dict[int, tuple[int, torch.Tensor]]


class Meter(TorchFunctionMode):  # type: ignore[misc]
    """On while the program runs; ends it after the first passes."""

    def __init__(self, passes: int = PASSES) -> None:
        super().__init__()
        self.found: list[Slopes] = []
        self._limit = passes
        self._uses: dict[int, Use] = {}
        self._patches = Patches()
        self._run: Any = None
        self._twin: _Twin | None = None
        self._opened = False
        # Set in a process that answers one question.
        self._question: Question | None = None
        self._answer: Callable[[float], NoReturn] | None = None

    def start(self) -> None:
        torch.set_num_threads(1)
        self._run = torch.autograd._engine_run_backward
        self._patches.set(torch.autograd, "_engine_run_backward", self._backward)
        self.__enter__()

    def stop(self) -> None:
        if self._twin is not None:
            self._twin.close()
        self.__exit__(None, None, None)
        self._patches.remove()

    def _open(self) -> None:
        """Fork as late as can be, when autograd is about to record the first leaf."""
        self._opened = True
        safe = hasattr(os, "fork") and threading.active_count() == 1
        self._twin = _Twin.forked(self) if safe else None

    def become(self, question: Question, answer: Callable[[float], NoReturn]) -> None:
        self._question, self._answer = question, answer

    # -- uses ---------------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        used: list[Use] = []
        if name not in NEUTRAL:
            if not self._opened and torch.is_grad_enabled() and (not name.endswith("_") or name.endswith("__")):
                leaves = _pytree.tree_leaves((args, kwargs))
                if any(isinstance(v, torch.Tensor) and v.is_leaf and v.requires_grad for v in leaves):
                    self._open()
            for value in _pytree.tree_leaves((args, kwargs)):
                if isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad:
                    used.append(self._used(value))
        result = func(*args, **(kwargs or {}))
        if used and torch.is_grad_enabled() and _is_recorded(result):
            for use in used:
                use.recorded = use.calls if use.recorded is None else use.recorded
        return result

    def _used(self, leaf: torch.Tensor) -> Use:
        use = self._uses.get(id(leaf))
        if use is None:
            use = self._uses[id(leaf)] = Use(len(self._uses), leaf)
        use.calls += 1
        if self._opened and use.seen is None:
            use.seen = use.calls
        moment, move = self._question.moves.get(use.number, (0, None)) if self._question is not None else (0, None)
        if move is not None and moment == use.calls:
            leaf.data.add_(move.to(leaf.device, leaf.dtype))
        return use

    # -- passes -------------------------------------------------------------------------------------

    def _backward(self, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [t for t in (outputs if isinstance(outputs, (tuple, list)) else (outputs,)) if torch.is_tensor(t)]
        if self._answer is not None:
            self._answer(_loss(tensors, args[0] if args else None))
        leaves, _ = reach(tensors, weigh=False)
        before = {id(leaf): None if leaf.grad is None else leaf.grad.detach().clone() for leaf in leaves}
        loss = _loss(tensors, args[0] if args else None)
        result = self._run(outputs, *args, **kwargs)
        told = _told(leaves, before, args, kwargs, result)
        self.found.append(self._measured(leaves, told, loss))
        if len(self.found) >= self._limit:
            raise StopProgram
        self._uses.clear()
        self._opened = False
        return result

    def _measured(self, leaves: list[torch.Tensor], told: dict[int, torch.Tensor] | None, loss: float) -> Slopes:
        twin, self._twin = self._twin, None
        missed = sum(id(leaf) not in self._uses for leaf in leaves)
        if twin is None or told is None or missed:
            if twin is not None:
                twin.close()
            return Slopes((), max(1, missed))
        try:
            uses = [u for u in self._uses.values() if u.recorded is not None or id(u.leaf) in told]
            groups = [uses[n::GROUPS] for n in range(min(GROUPS, len(uses)))]
            if sum(use.leaf.numel() for use in uses) > LARGEST:
                return Slopes((), len(uses))
            found = [slope for group in groups for slope in _directions(twin, group, told, loss)]
            return Slopes(tuple(found), 0)
        except (OSError, EOFError, pickle.PickleError):
            return Slopes((), 1)
        finally:
            twin.close()


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


def _directions(twin: _Twin, group: list[Use], told: dict[int, torch.Tensor], loss: float) -> list[Slope]:
    """The slope along the gradient that was told, and along a direction drawn at random."""
    gradients = [told.get(id(use.leaf), torch.zeros(use.leaf.shape, dtype=torch.float64)) for use in group]
    draw = torch.Generator().manual_seed(group[0].number)
    drawn = [torch.randn(g.shape, generator=draw, dtype=torch.float64) for g in gradients]
    found = []
    steepest = sum(float(g.pow(2).sum()) for g in gradients) ** 0.5
    for direction in (gradients, drawn):
        length = sum(float(d.pow(2).sum()) for d in direction) ** 0.5
        if length > 0 and length < float("inf"):
            unit = [d / length for d in direction]
            slope = sum(float((g * d).sum()) for g, d in zip(gradients, unit, strict=True))
            at_random = direction is drawn
            found.append(_slope(twin, group, unit, slope, loss, gradient=steepest, drawn=at_random))
    return found


def _slope(
    twin: _Twin, group: list[Use], unit: list[torch.Tensor], told: float, loss: float, *, gradient: float, drawn: bool
) -> Slope:
    size = sum(float(use.leaf.detach().to(torch.float64).pow(2).sum()) for use in group) ** 0.5
    rounding = ROUNDING * max(torch.finfo(use.leaf.dtype).eps for use in group) * max(abs(loss), 1e-3)
    measured = float("nan")
    for relative in STEPS:
        step = relative * max(size, 1.0)
        ends = []
        for sign in (1.0, -1.0):
            pairs = zip(group, unit, strict=True)
            moves = {use.number: (use.moment, sign * step * part) for use, part in pairs}
            ends.append(twin.ask(Question(moves)))
        measured = (ends[0] - ends[1]) / (2 * step)
        noise = rounding / step
        largest = max(abs(told), abs(measured))
        near = abs(measured - told) <= RELATIVE * largest + noise
        # Rounding may hide a small slope, but not the one along the gradient itself, unless there is none.
        if near and (noise <= 0.2 * largest or largest <= 2 * noise or (drawn and noise <= 0.2 * gradient)):
            return Slope(len(group), told, measured, True)
    return Slope(len(group), told, measured, False)


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
        _serve(meter, asked, answered)
        return None

    def ask(self, question: Question) -> float:
        pickle.dump(question, self._ask)
        self._ask.flush()
        return float(pickle.load(self._answer))

    def close(self) -> None:
        for file in (self._ask, self._answer):
            with contextlib.suppress(OSError):
                file.close()
        os.waitpid(self._pid, 0)


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
