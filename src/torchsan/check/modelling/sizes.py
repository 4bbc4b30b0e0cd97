"""Sizes that stand in the source: which tensors have a dimension of size 1, and which `expand` repeats elements."""

from __future__ import annotations

from typing import Any

from torchsan.check.modelling.values import Plain, Sequence, Tensor

_ADD_ONE = frozenset({"unsqueeze", "unsqueeze_"})
_BY_SIZE = frozenset({"view", "reshape", "new_zeros", "new_ones", "new_empty", "new_full"})
_KEEP_SIZE = frozenset({"to", "type", "float", "double", "half", "cpu", "cuda", "type_as", "detach", "contiguous"})


def sizes_in(args: list[Any]) -> list[Any]:
    """Numbers given one by one or as one list; None for one that is not known."""
    items = args[0].items if len(args) == 1 and isinstance(args[0], Sequence) else args
    return [i.value if isinstance(i, Plain) and i.known else None for i in items]


def stays_thin(source: Tensor | None, op: str, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Whether what an op makes of a tensor has a dimension of size 1; `args` are those after the tensor."""
    if op in _ADD_ONE:
        return True
    keep = kwargs.get("keepdim")
    if isinstance(keep, Plain) and keep.known and keep.value is True:
        return True
    if op in _BY_SIZE:
        return made_thin(args)
    return source is not None and source.thin and op in _KEEP_SIZE


def made_thin(args: list[Any]) -> bool:
    """Of memory that is made anew: a size of 1, or no dimension."""
    if len(args) == 1 and isinstance(args[0], Sequence) and not args[0].items:
        return True
    return any(isinstance(size, int) and size == 1 for size in sizes_in(args))


def expanded_as(source: Tensor, op: str, args: list[Any]) -> str:
    """The kind of view that `expand` makes: only what surely grows surely has elements in one place of memory."""
    sizes = sizes_in(args) if op == "expand" else [None]
    if any(isinstance(size, int) and size > 1 for size in sizes):
        return "expanded"
    if sizes and all(isinstance(size, int) for size in sizes):
        return "view"
    return "expanded" if source.thin else "stretched"
