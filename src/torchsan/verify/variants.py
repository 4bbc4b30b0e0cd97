"""Other inputs on which a capture must agree with eager.

A change of an input is a Python expression in `x`, the example: what is tried is what is printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from torchsan.verify.subject import Plan, Subject

Kind = Literal["example", "values", "size", "calls", "seed", "dtype", "arguments", "mode"]


@dataclass(frozen=True)
class Variant:
    """Edits by index of the leaf, and how often and with which random state to call.

    `each` has the edits of every call where they are not the same for all of them.
    """

    kind: Kind
    label: str
    edits: dict[int, str] = field(default_factory=dict)
    calls: int = 1
    seed: int = 0
    dimension: str = ""
    double: bool = False
    left_out: tuple[str, ...] = ()
    each: tuple[dict[int, str], ...] = ()
    training: bool | None = None
    # The dimension that must agree by itself before calls with other sizes of it tell anything new.
    needs: str = ""

    @property
    def only_size_one(self) -> bool:
        return self.kind == "size" and self.label.endswith("→ 1")

    @property
    def column(self) -> str:
        return self.dimension if self.kind == "size" else self.kind

    @property
    def all_edits(self) -> tuple[dict[int, str], ...]:
        """The edits of every call."""
        return self.each or (self.edits,) * self.calls

    def leaves(self, subject: Subject) -> list[Any]:
        """The inputs of the first call."""
        return self.plan(subject).calls[0]

    def plan(self, subject: Subject) -> Plan:
        made: dict[str, list[Any]] = {}
        for edits in self.all_edits:
            if repr(edits) not in made:
                made[repr(edits)] = self._edited(subject, edits)
        calls = tuple(made[repr(edits)] for edits in self.all_edits)
        return Plan(calls, self.seed, self.double, self.left_out, self.training)

    def _edited(self, subject: Subject, edits: dict[int, str]) -> list[Any]:
        values = list(subject.leaves)
        for index, expression in edits.items():
            values[index] = evaluate(expression, subject.leaves[index], subject.others)
        return [widened(value) for value in values] if self.double else values


def widened(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.dtype == torch.float32
    return value.detach().double().requires_grad_(value.requires_grad) if is_float else value


def evaluate(expression: str, x: torch.Tensor, others: Sequence[list[Any] | None] = ()) -> torch.Tensor:
    """`x` is the example's tensor, `others` the flattened inputs of the other calls that were given."""
    with torch.no_grad():
        value = eval(expression, {"torch": torch, "x": x.detach(), "others": others})
    if not isinstance(value, torch.Tensor):
        raise TypeError(expression)
    return value.requires_grad_(x.requires_grad and value.is_floating_point())


GIVEN = "the other inputs that were given"


def given_variants(subject: Subject) -> Iterator[Variant]:
    """The calls that the model is meant for by its author's own word, each alone and all in their order."""
    every = []
    for number, leaves in enumerate(subject.others):
        edits = _differing(subject, leaves, number) if leaves is not None else None
        if leaves is None or edits is None:
            continue
        every.append(edits)
        resized = _is_resized(subject, edits)
        label = f"input {number + 2} of those that were given"
        yield Variant("size" if resized else "values", label, edits, seed=subject.seed, dimension=GIVEN * resized)
    if every:
        needs = GIVEN * any(_is_resized(subject, edits) for edits in every)
        yield Variant("calls", "one call after another, as given", seed=subject.seed, each=({}, *every), needs=needs)


def _is_resized(subject: Subject, edits: dict[int, str]) -> bool:
    changed = ((i, evaluate(text, subject.leaves[i], subject.others)) for i, text in edits.items())
    return any(value.shape != subject.leaves[i].shape for i, value in changed)


def _differing(subject: Subject, leaves: list[Any], number: int) -> dict[int, str] | None:
    """Edits that make these inputs of the example; None where something other than tensors differs."""
    edits = {}
    for index, (old, new) in enumerate(zip(subject.leaves, leaves, strict=True)):
        if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
            edits[index] = f"others[{number}][{index}]"
        elif type(old) is not type(new) or not (old is new or bool(old == new)):
            return None
    return edits or None


def generator(seed: int) -> str:
    return f"generator=torch.Generator().manual_seed({seed})"


def _float_edits(x: torch.Tensor, seed: int) -> Iterator[tuple[str, str]]:
    detached = x.detach()
    if x.numel() and bool((detached >= 0).all()) and bool((detached <= 1).all()):
        # Probabilities, pictures, masks: stay within the range first.
        yield "other values in 0..1", f"torch.rand(x.shape, {generator(seed)}, dtype=x.dtype)"
        yield "mirrored in 0..1", "1 - x"
    yield "negated", "-x"
    yield "scaled by 10", "x * 10"
    yield "other random values", f"torch.randn(x.shape, {generator(seed + 1)}, dtype=x.dtype)"
    yield "zeros", "torch.zeros_like(x)"
    yield "scaled by 0.01", "x * 0.01"
    yield "ones", "torch.ones_like(x)"
    yield "reversed", "x.flatten().flip(0).view_as(x)"
    yield "scaled by -100", "x * -100"
    yield "shifted by 5", "x + 5"
    yield "shifted by 100", "x + 100"
    yield "shifted by -100", "x - 100"


def _int_edits(x: torch.Tensor, seed: int, highest: int | None) -> Iterator[tuple[str, str]]:
    low, high = int(x.min()), int(x.max())
    more = f"{generator(seed)}, dtype=x.dtype)"
    yield "reversed", "x.flatten().flip(0).view_as(x)"
    if high > low:
        yield "other integers in the range", f"torch.randint({low}, {high + 1}, x.shape, {more}"
        yield (
            "other integers in the range, again",
            f"torch.randint({low}, {high + 1}, x.shape, {generator(seed + 1)}, dtype=x.dtype)",
        )
    yield "smallest", f"torch.full_like(x, {low})"
    yield "largest", f"torch.full_like(x, {high})"
    if highest is not None and highest - 1 != high:
        yield "any row of the embedding", f"torch.randint(0, {highest}, x.shape, {more}"
    yield "one less", "x - 1" if low > 0 else "(x - 1).clamp(min=0)"
    yield "one more", "x + 1"
    yield "zeros", "torch.zeros_like(x)"
    yield "ones", "torch.ones_like(x)"


def _bool_edits(x: torch.Tensor, seed: int) -> Iterator[tuple[str, str]]:
    yield "flipped", "~x"
    yield "other booleans", f"torch.rand(x.shape, {generator(seed)}) < 0.5"
    yield "all true", "torch.ones_like(x)"
    yield "all false", "torch.zeros_like(x)"


def edits_of(x: torch.Tensor, seed: int, highest: int | None = None) -> list[tuple[str, str]]:
    """Other values for one tensor: what to call them, and the expression."""
    if x.numel() == 0 or x.layout != torch.strided or x.is_quantized:
        return []
    if x.dtype == torch.bool:
        return list(_bool_edits(x, seed))
    if x.is_floating_point():
        return list(_float_edits(x, seed))
    if x.is_complex():
        return [("negated", "-x"), ("scaled by 10", "x * 10"), ("zeros", "torch.zeros_like(x)")]
    return list(_int_edits(x, seed, highest))


def value_variants(subject: Subject, highest: dict[int, int]) -> Iterator[Variant]:
    """Each input alone, first the likeliest edits of every input, then the rarer ones; then all at once."""
    seed = subject.seed + 101
    each = {i: edits_of(subject.leaves[i], seed + 10 * i, highest.get(i)) for i in subject.tensors}
    for rank in range(max((len(edits) for edits in each.values()), default=0)):
        for index, edits in each.items():
            if rank < len(edits):
                label, expression = edits[rank]
                name = subject.names[index]
                yield Variant("values", f"{name}: {label}", {index: expression}, seed=subject.seed)
        if rank < 6 and len(each) > 1:
            both = {index: edits[rank][1] for index, edits in each.items() if rank < len(edits)}
            if len(both) > 1:
                yield Variant("values", f"all inputs changed ({rank + 1})", both, seed=subject.seed)


def sequence(subject: Subject, label: str, each: Iterable[dict[int, str]]) -> Variant:
    """Calls with other inputs one after another."""
    edits = tuple(each)
    return Variant("calls", label, calls=len(edits), seed=subject.seed, each=edits)


def call_variants(subject: Subject, others: list[dict[int, str]]) -> Iterator[Variant]:
    """Called again, with the same inputs and with others: state that one call sets and the next one reads."""
    yield Variant("calls", "called three times", calls=3, seed=subject.seed)
    if others:
        first, last = others[0], others[-1]
        yield sequence(subject, "called three times, each time with other values", ({}, first, last))
        yield sequence(subject, "called with other values, then with the example", (first, {}, {}))


def seed_variants(subject: Subject) -> Iterator[Variant]:
    for step in (1, 2, 3):
        yield Variant("seed", f"random seed {subject.seed + step}", seed=subject.seed + step)
