"""Find out what an op needs for its gradient: run it, write to one tensor, see what backward does.

The only module here that runs torch ops. An op *needs* a tensor when, after a write to it, backward
refuses or hands out another gradient; what is saved but never read is not needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Call = Callable[[list[Any]], Any]


@dataclass
class Tally:
    """Over all samples of an op: how often a need or an alias could show, and how often it did."""

    tried: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    seen: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    outputs: int = 1
    samples: int = 0

    def note(self, what: str, source: str, shown: bool) -> None:
        self.tried[what, source] += 1
        self.seen[what, source] += shown

    def pairs(self, prefix: str, *, always: bool) -> Iterator[tuple[str, str]]:
        for (what, source), times in self.seen.items():
            if what.startswith(prefix) and times and (times == self.tried[what, source]) == always:
                yield what.removeprefix(prefix), source


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in tensors_of(item)]
    return []


def _differentiable(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() and tensor.layout == torch.strided and tensor.numel() > 0)


def _copies(tensors: Sequence[torch.Tensor], graded: int | None) -> list[torch.Tensor]:
    """Fresh non-leaf copies, so that writes to them are legal; only one asks for a gradient."""
    made = []
    for index, tensor in enumerate(tensors):
        leaf = tensor.detach().clone().requires_grad_(index == graded)
        made.append(leaf * 1 if index == graded else leaf)
    return made


def _gradient(call: Call, tensors: list[torch.Tensor], graded: int, write_to: str | None) -> Any:
    """The gradient of input `graded`, with a write to `write_to` ("in2", "out0") before backward.

    "refused" when backward raises, None when there is no gradient to speak of.
    """
    torch.manual_seed(0)
    leaf = tensors[graded].detach().clone().requires_grad_(True)
    inputs = _copies(tensors, None)
    inputs[graded] = leaf * 1
    outputs = tensors_of(call(inputs))
    used = [o for o in outputs if o.requires_grad and o.grad_fn is not None]
    if not used:
        return None
    # Scaling through a constant keeps backward away from the written outputs themselves.
    seeds = [torch.linspace(0.5, 1.5, o.numel(), dtype=o.dtype).reshape(o.shape) for o in used]
    # A write gives its tensor a new history; the old one is what backward must walk.
    edges = [torch.autograd.graph.get_gradient_edge(o) for o in used]
    if write_to is not None:
        group, number = (inputs, write_to[2:]) if write_to.startswith("in") else (outputs, write_to[3:])
        if int(number) >= len(group):
            return None
        _scramble(group[int(number)])
    try:
        return torch.autograd.grad(edges, [leaf], seeds, allow_unused=True)[0]
    except RuntimeError as error:
        if "modified by an inplace operation" in str(error):
            return "refused"
        raise


def _scramble(tensor: torch.Tensor) -> None:
    with torch.no_grad():
        if tensor.dtype == torch.bool:
            tensor.logical_not_()
        elif tensor.is_floating_point():
            tensor.mul_(0.5).add_(0.25)
        else:
            tensor.mul_(1)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, str) or isinstance(other, str) or one is None or other is None:
        return one is other or (isinstance(one, str) and one == other)
    return bool(torch.allclose(one, other, equal_nan=True))


def _note_needs(tally: Tally, call: Call, tensors: list[torch.Tensor], names: list[str], outs: int) -> None:
    for graded, source in enumerate(names):
        if not _differentiable(tensors[graded]):
            continue
        reference = _gradient(call, tensors, graded, None)
        if reference is None or isinstance(reference, str):
            continue
        again = _gradient(call, tensors, graded, None)
        if not _same(reference, again):
            continue
        places = [f"in{i}" for i in range(len(names))] + [f"out{i}" for i in range(outs)]
        for place in places:
            got = _gradient(call, tensors, graded, place)
            if got is None:
                continue
            name = names[int(place[2:])] if place.startswith("in") else place
            tally.note(f"need:{name}", source, not _same(got, reference))


def _note_aliases(tally: Tally, call: Call, tensors: list[torch.Tensor], names: list[str]) -> int:
    inputs = _copies(tensors, None)
    outputs = tensors_of(call(inputs))
    for index, output in enumerate(outputs[:2]):
        for name, tensor in zip(names, inputs, strict=True):
            shared = _address(output) == _address(tensor) != 0
            tally.note(f"alias:{name}", f"out{index}", shared)
    return len(outputs)


def _address(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return 0


def try_sample(tally: Tally, call: Call, tensors: list[torch.Tensor], names: list[str]) -> None:
    """Add what one sample shows. A sample that an op refuses shows nothing."""
    if not tensors or any(t.numel() == 0 or t.layout != torch.strided for t in tensors):
        return
    try:
        outs = _note_aliases(tally, call, tensors, names)
        _note_needs(tally, call, tensors, names, min(outs, 3))
    except Exception:
        # The database holds samples on purpose at the edge of what an op takes.
        return
    tally.samples += 1
    tally.outputs = max(tally.outputs, outs)
