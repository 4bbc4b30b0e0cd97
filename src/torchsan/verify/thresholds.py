"""Inputs that push a branch of the model over to its other side.

A branch on data is a comparison of tensors that Python asks for its truth. Its margin (left minus right) is
a function of the inputs: its gradient tells which inputs to move, and by how much, to turn it over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from torchsan.verify.frames import user_places
from torchsan.verify.subject import Subject, quiet, seed_everything
from torchsan.verify.timing import time_limit
from torchsan.verify.variants import Variant

_COMPARISONS = {"gt", "lt", "ge", "le", "eq", "ne", "greater", "less", "greater_equal", "less_equal",
                "__gt__", "__lt__", "__ge__", "__le__", "__eq__", "__ne__"}  # fmt: skip
MOST_SITES, MOST_STEPS, MOST_LITERALS = 12, 8, 64
Site = tuple[str, int, int]


@dataclass
class Branch:
    """One question of Python to a tensor: what it answered, and by what margin."""

    site: Site
    answer: bool
    margin: torch.Tensor | None


class _Margins(TorchFunctionMode):  # type: ignore[misc]
    """Remembers, for boolean tensors, the margin that decides them."""

    def __init__(self) -> None:
        super().__init__()
        self.margins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.branches: list[Branch] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in _COMPARISONS and len(args) == 2 and isinstance(result, torch.Tensor):
            self._compared(result, args)
        elif name in ("any", "all") and args and id(args[0]) in self.margins and len(args) == 1:
            margin = self.margins[id(args[0])][1]
            self.margins[id(result)] = (result, margin.max() if name == "any" else margin.min())
        elif name == "__bool__" and len(self.branches) < 500:
            places = user_places(1)
            if places:
                known = self.margins.get(id(args[0]))
                margin = known[1] if known and known[1].numel() == 1 else None
                self.branches.append(Branch((places[0].path, places[0].line, places[0].column), result, margin))
        return result

    def _compared(self, result: torch.Tensor, args: Any) -> None:
        with contextlib.suppress(Exception, SystemExit):
            left, right = (a if isinstance(a, torch.Tensor) else torch.tensor(float(a)) for a in args)
            self.margins[id(result)] = (result, left.double() - right.double())


def branches_of(subject: Subject, leaves: list[Any], seed: int) -> tuple[list[Branch], list[Any]]:
    """Run eager with gradients for its inputs and list its branches on data."""
    model = subject.fresh()
    args, kwargs = subject.inputs(leaves)
    values = pytree.tree_leaves((args, kwargs))
    inputs = [
        v.detach().clone().requires_grad_() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
        for v in values
    ]
    # Models may write to their inputs, which leaves do not allow: hand over results of an operation.
    given = [v * 1 if isinstance(v, torch.Tensor) and v.requires_grad else v for v in inputs]
    args, kwargs = pytree.tree_unflatten(given, subject.spec)
    seed_everything(seed)
    mode = _Margins()
    with quiet(), contextlib.suppress(Exception, SystemExit), time_limit(subject.limit), torch.enable_grad(), mode:
        model(*args, **kwargs)
    return mode.branches, inputs


def _steps(branch: Branch, inputs: list[Any]) -> dict[int, torch.Tensor]:
    """For every input, the change that takes the margin a little over to its other side."""
    floats = [i for i, v in enumerate(inputs) if isinstance(v, torch.Tensor) and v.requires_grad]
    if branch.margin is None or not branch.margin.requires_grad or not floats:
        return {}
    grads = torch.autograd.grad(branch.margin, [inputs[i] for i in floats], allow_unused=True, retain_graph=True)
    found = {i: g.double() for i, g in zip(floats, grads, strict=True) if g is not None and bool((g != 0).any())}
    square = sum(float((g * g).sum()) for g in found.values())
    if not square or not all(bool(torch.isfinite(g).all()) for g in found.values()):
        return {}
    margin = float(branch.margin.detach())
    target = -(margin + (1e-3 + 0.05 * abs(margin)) * (1 if margin >= 0 else -1))
    return {i: (g * (target / square)).to(inputs[i].dtype) for i, g in found.items()}


def _expression(old: torch.Tensor, new: torch.Tensor) -> str | None:
    """The changed input as code: few elements are written out, many only when all move alike."""
    changed = (old != new).flatten().nonzero().flatten()
    if not len(changed):
        return None
    if len(changed) <= MOST_LITERALS:
        values = [float(f"{v:.9g}") for v in new.flatten()[changed].tolist()]
        where = f"(torch.tensor({changed.tolist()}),)"
        return f"x.flatten().index_put({where}, torch.tensor({values}, dtype=x.dtype)).view_as(x)"
    shift = (new - old).flatten()
    if bool(((shift - shift[0]).abs() <= 1e-4 * shift[0].abs()).all()):
        return f"x + {float(shift[0]):.6g}"
    return None


def _pushed(subject: Subject, start: list[Any], site: Site, answer: bool) -> list[Any] | None:
    """Inputs on which one branch answers otherwise, found by steps along the gradient of its margin."""
    leaves = list(start)
    for _ in range(MOST_STEPS):
        branches, inputs = branches_of(subject, leaves, subject.seed)
        branch = next((b for b in branches if b.site == site), None)
        if branch is None:
            return None
        if branch.answer != answer:
            return leaves
        steps = _steps(branch, inputs)
        if not steps:
            return None
        for index, step in steps.items():
            leaves[index] = inputs[index].detach() + step
    return None


def _edits(subject: Subject, leaves: list[Any]) -> dict[int, str]:
    pairs = {i: (subject.leaves[i], leaves[i]) for i in subject.tensors if leaves[i] is not subject.leaves[i]}
    found = {i: _expression(old.detach(), new.detach()) for i, (old, new) in pairs.items()}
    return {i: text for i, text in found.items() if text}


def threshold_variants(subject: Subject) -> Iterator[Variant]:
    """For every branch on data that the example meets, an input that takes the other side.

    Behind a branch there may be others (`if a > 1 and b < 2`): they are pushed from where the first has led.
    """
    seen: set[Site] = set()
    todo = [list(subject.leaves)]
    while todo and len(seen) < MOST_SITES:
        start = todo.pop(0)
        for branch in branches_of(subject, start, subject.seed)[0]:
            if branch.site in seen or len(seen) >= MOST_SITES:
                continue
            seen.add(branch.site)
            with contextlib.suppress(Exception, SystemExit):
                leaves = _pushed(subject, start, branch.site, branch.answer)
                edits = _edits(subject, leaves) if leaves else {}
                if leaves and edits:
                    todo.append(leaves)
                    label = f"the branch at line {branch.site[1]} taken the other way"
                    yield Variant("values", label, edits, seed=subject.seed)
