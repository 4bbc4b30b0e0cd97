"""How a write treats what was there: whether it replaces, edits, transforms or adds to the old values."""

from __future__ import annotations

from enum import Enum
from typing import Any

import torch

from torchsan.observe.objects import is_exactly, is_tensor, sequence_of

# Ops that do not look at what they overwrite.
REPLACING = {
    *("copy_", "fill_", "zero_", "set_", "eye_", "ones_", "zeros_", "constant_"),
    *("normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_", "log_normal_", "cauchy_"),
}
# Ops that put a constant in some places.
EDITING = {"masked_fill_", "index_fill_", "fill_diagonal_", "triu_", "tril_"}
# Ops that change what they have seen already no more: to do them twice is to do them once.
SETTLED = {"clamp_", "clip_", "relu_", "abs_", "floor_", "ceil_", "round_", "sign_", *EDITING, *REPLACING}


class Manner(Enum):
    REPLACED = "replaced"  # nothing of the old values is left
    FILLED = "filled"  # some places got data
    EDITED = "edited"  # some places got a constant
    TRANSFORMED = "transformed"  # a function of the old values and constants
    ACCUMULATED = "accumulated"  # old values and data together

    @property
    def reads(self) -> bool:
        """Does the result depend on what was there?"""
        return self in (Manner.TRANSFORMED, Manner.ACCUMULATED)

    @property
    def of_the_value(self) -> bool:
        """A change of the value itself: no data came in."""
        return self in (Manner.TRANSFORMED, Manner.EDITED)


def is_out(op: str) -> bool:
    """Ops that write their `out=` argument have neither an underscore nor an operator's name."""
    return not op.endswith("_")


def manner_of(op: str, receiver: torch.Tensor, args: tuple[Any, ...]) -> Manner:
    """`args` begin with the receiver, unless the op writes its `out=`."""
    op = op.removeprefix("_foreach_")
    if is_out(op) or op in REPLACING:
        return Manner.REPLACED
    if op == "__setitem__":
        value = args[2] if len(args) > 2 else None
        whole = len(args) > 1 and (args[1] is Ellipsis or args[1] == slice(None)) if not _tensors(args[1:2]) else False
        if is_tensor(value) and value.numel() > 1:
            return Manner.REPLACED if whole else Manner.FILLED
        return Manner.REPLACED if whole else Manner.EDITED if _is_number(value) else Manner.FILLED
    if op in EDITING:
        return Manner.EDITED
    data = [t for t in _tensors(args[1:]) if t.dtype is not torch.bool]
    if any(_is_data(t, receiver) for t in data):
        return Manner.ACCUMULATED
    return Manner.TRANSFORMED


def _tensors(values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if is_tensor(value):
            found.append(value)
        else:
            found += _tensors(sequence_of(value))
    return found


def _is_number(value: Any) -> bool:
    return issubclass(type(value), (int, float, complex))


def _is_data(operand: torch.Tensor, receiver: torch.Tensor) -> bool:
    """As large as what it is added to. A mean or a scale of channels is smaller: it is broadcast."""
    small = operand.numel() < receiver.numel() and operand.dim() <= receiver.dim()
    return bool(receiver.numel() == 1 or not small)


def _is_index(value: Any) -> bool:
    """Slices and numbers, alone or several."""
    parts = value if type(value) is tuple else (value,)
    return all(is_exactly(part, (slice, int, type(None), type(...))) for part in parts)


def signature(args: tuple[Any, ...]) -> object:
    """The operands of a write, to tell whether the next one has the same."""
    from torchsan.observe.holders.extents import contents

    parts: list[object] = []
    for value in args[1:]:
        if is_tensor(value):
            parts.append(contents(value))
        elif is_exactly(value, (int, float, complex, str, bool, type(None))):
            parts.append(value)
        else:
            parts.append(repr(value) if _is_index(value) else id(type(value)))
    return tuple(parts)
