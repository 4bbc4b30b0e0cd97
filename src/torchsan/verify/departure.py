"""Where no read-out explains it: the first operation at which a capture and eager part."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torchsan.model import Place
from torchsan.model.capture_events import Constant, Departure
from torchsan.verify.frames import called_by_torch, text_of, user_places
from torchsan.verify.methods import Captured
from torchsan.verify.subject import Subject, quiet, seed_everything
from torchsan.verify.timing import time_limit

# Operations that only rename memory: captures add and drop them freely.
_IGNORED = {
    "detach",
    "alias",
    "t",
    "view",
    "_unsafe_view",
    "expand",
    "clone",
    "lift_fresh",
    "contiguous",
    "slice",
}
_MAKERS = {
    *(
        "zeros",
        "ones",
        "full",
        "empty",
        "arange",
        "scalar_tensor",
        "_to_copy",
        "eye",
        "linspace",
        "rand",
        "randn",
    ),
    *("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like"),
    *("new_zeros", "new_ones", "new_full", "new_empty"),
}


WINDOW = 40


@dataclass(frozen=True)
class Step:
    name: str
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    sums: tuple[float, ...]
    place: Place | None
    by_torch: bool = False
    owner: str = ""


class _Log(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self, with_places: bool, owner: Callable[[], str] | None = None) -> None:
        super().__init__()
        self.owner = owner or str
        self.steps: list[Step] = []
        self.with_places = with_places

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2].rstrip("_")
        tensors = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        # What gives no tensor tells nothing: TorchScript compares its constants by the dozen before it begins.
        if tensors and name not in _IGNORED and len(self.steps) < 50_000:
            self.steps.append(
                Step(
                    name,
                    tuple(str(t.dtype) for t in tensors),
                    tuple(tuple(t.shape) for t in tensors),
                    tuple(_sum(t) for t in tensors) if not name.startswith("empty") else (),
                    next(iter(user_places(1)), None) if self.with_places else None,
                    called_by_torch() if self.with_places else False,
                    self.owner(),
                )
            )
        return result


def _sum(tensor: torch.Tensor) -> float:
    if not tensor.numel() or tensor.is_complex() or tensor.layout != torch.strided:
        return 0.0
    return float(tensor.detach().double().sum())


def steps_of(
    function: Callable[..., Any],
    subject: Subject,
    leaves: list[Any],
    seed: int,
    places: bool,
    owner: Callable[[], str] | None = None,
) -> list[Step]:
    """The operations of one call, with the user's lines and with the module (`owner`) when asked for."""
    args, kwargs = subject.inputs(leaves)
    seed_everything(seed)
    log = _Log(places, owner)
    with quiet(), contextlib.suppress(Exception, SystemExit), time_limit(subject.limit), log:
        function(*args, **kwargs)
    return log.steps


def both_steps(
    subject: Subject, captured: Captured, leaves: list[Any], seed: int, *, double: bool = False
) -> tuple[list[Step], list[Step]]:
    """The operations of eager and of a capture on the same inputs."""
    model = subject.fresh()
    with quiet():
        module: Any = captured.fresh()
        if double:
            model, module = model.double(), module.double()
    eager = steps_of(model, subject, leaves, seed, True)
    return eager, steps_of(captured.function(module, subject), subject, leaves, seed, False)


def first_departure(eager: list[Step], captured: list[Step]) -> Departure | None:
    index = first_unmatched(eager, captured)
    for step in eager[index:] if index is not None else []:
        if step.place is not None:
            return Departure(step.place, text_of(step.place), is_operation=True)
    return None


def first_unmatched(eager: list[Step], captured: list[Step]) -> int | None:
    """The first step of eager that the capture does not take; captures may take more steps of their own."""
    at = 0
    for index, step in enumerate(eager):
        found = next((i for i in range(at, min(at + WINDOW, len(captured))) if alike(step, captured[i])), None)
        if found is not None:
            at = found + 1
        elif not index or not _changes_nothing(eager[index - 1], step):
            return index
    return None


def _changes_nothing(before: Step, step: Step) -> bool:
    """Whether an operation gives what the one before it gave: `1 / x` is multiplied by 1, which is optimised away."""
    return (before.shapes, before.dtypes, before.sums) == (step.shapes, step.dtypes, step.sums)


def alike(a: Step, b: Step) -> bool:
    close = all(x == y or abs(x - y) <= 1e-3 * (1 + abs(x)) or x != x for x, y in zip(a.sums, b.sums, strict=False))
    return a.name == b.name and a.shapes == b.shapes and a.dtypes == b.dtypes and close


def frozen_dtype(eager: list[Step], captured: list[Step]) -> Constant | None:
    """The first tensor made with a dtype that follows the input in eager mode but not in the capture."""
    makers = [s for s in eager if s.name in _MAKERS]
    others = [s for s in captured if s.name in _MAKERS]
    for step, other in _paired(makers, others):
        if step.dtypes != other.dtypes:
            if step.place is None or step.by_torch:
                # Layers of torch freeze theirs, too (the initial state of an LSTM): not the user's doing.
                return None
            return Constant(step.place, text_of(step.place), other.dtypes[0], step.dtypes[0])
    return None


def _paired(eager: list[Step], captured: list[Step]) -> Iterator[tuple[Step, Step]]:
    """The same steps of both: a capture leaves out what nobody uses, so that counting them is not enough."""
    ours, theirs = ([(step.name, step.shapes) for step in steps] for steps in (eager, captured))
    for block in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        yield from zip(eager[block.a : block.a + block.size], captured[block.b : block.b + block.size], strict=True)
