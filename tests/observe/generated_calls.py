"""Arguments for torch's mutable ops, made from their schemas. What a call needs is found by trying a few kinds."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

# Ops that need another device, another layout, or arguments that only torch itself can make; some of these read or
# write out of bounds when given others.
ELSEWHERE = (
    *("cudnn", "cuda", "mkldnn", "sparse", "quantize", "nested", "record_stream", "_thnn", "_flash", "backward"),
    *("_fused_", "rename_", "detach_", "requires_grad_"),
)
SIZES = {"size": [3, 3], "dims": [0], "dim": [0], "kernel_size": [2, 2], "output_size": [2, 2], "padding": [0, 0]}
PLAIN: dict[str, Any] = {
    "number": 1,
    "Scalar": 1,
    "float": 0.5,
    "bool": False,
    "str": "mean",
    "List[number]": [1, 1],
    "List[float]": [0.5, 0.5],
}
# Which kind of tensor each argument gets, by name, `*` for all others; tried in turn until torch takes one.
TRIES = (
    *({"*": "float"}, {"*": "long"}, {"*": "bool"}, {"*": "complex"}, {"*": "row"}, {"*": "cube"}, {"*": "image"}),
    *({"*": "float", "index": "long", "indices": "long"}, {"*": "row", "index": "places"}),
    *({"*": "float", "index": "places"}, {"*": "float", "mask": "bool"}, {"*": "float", "out": "long"}),
    *({"*": "float", "out": "bool"}, {"*": "float", "values": "float", "indices": "long"}),
    *({"*": "cube", "self": "float"}, {"*": "float", "vec": "row", "vec1": "row", "vec2": "row"}),
    {"*": "row", "mat": "float"},
)


def mutable_ops() -> list[Any]:
    found = []
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        space, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        if space != "aten" or any(word in name for word in ELSEWHERE):
            continue
        if name.startswith("_") and not name.startswith("_foreach"):
            continue
        op = getattr(getattr(torch.ops.aten, name), overload or "default")
        if op._schema.is_mutable:
            found.append(op)
    return found


def _tensor(kind: str) -> torch.Tensor:
    makers = {
        "float": lambda: torch.rand(3, 3) + 0.5,
        "long": lambda: torch.randint(0, 2, (3, 3)),
        "bool": lambda: torch.rand(3, 3) > 0.5,
        "complex": lambda: torch.complex(torch.rand(3, 3), torch.rand(3, 3)),
        "row": lambda: torch.rand(3) + 0.5,
        "places": lambda: torch.tensor([0, 2, 1]),
        "cube": lambda: torch.rand(2, 3, 3),
        "image": lambda: torch.rand(1, 2, 4, 4),
    }
    return makers[kind]()


def _value(argument: Any, kinds: dict[str, str]) -> Any:
    kind, written = str(argument.type), argument.alias_info is not None and argument.alias_info.is_write
    if kind.startswith("Optional["):
        if not written:
            return None
        kind = kind[len("Optional[") : -1]
    if kind == "Tensor":
        return _tensor(kinds.get(argument.name, kinds["*"]))
    if kind == "List[Tensor]":
        return [_tensor(kinds["*"]), _tensor(kinds["*"])]
    if kind.startswith("List[Optional[Tensor]"):
        return [torch.tensor([0, 2, 1])]
    if argument.has_default_value():
        return argument.default_value
    if kind in ("int", "SymInt"):
        return {"dim": 0, "n": 3}.get(argument.name, 1)
    if kind.startswith(("List[int", "List[SymInt")):
        return SIZES.get(argument.name, [1, 1])
    if kind == "Storage":
        return torch.rand(9).untyped_storage()
    return PLAIN[kind]


def arguments(op: Any, kinds: dict[str, str]) -> tuple[list[Any], dict[str, Any], list[torch.Tensor]]:
    """Positional arguments, keywords, and the tensors among them that the op writes."""
    placed: list[Any] = []
    named: dict[str, Any] = {}
    written: list[torch.Tensor] = []
    for argument in op._schema.arguments:
        value = _value(argument, kinds)
        if argument.alias_info is not None and argument.alias_info.is_write:
            written += value if isinstance(value, list) else [value]
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            placed.append(value)
    return placed, named, written


@contextmanager
def stderr_closed() -> Iterator[None]:
    """Torch's C++ warns of each output that is resized, straight to the terminal."""
    ctypes.CDLL(None).fflush(None)
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
