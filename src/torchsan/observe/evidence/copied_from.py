"""Values that are copies of the same memory under two names: `flat(net.state_dict()) - flat(kept)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from torchsan.observe import expressions as syntax
from torchsan.observe.holders.extents import extent_of
from torchsan.observe.holders.resolving import NOTHING, value_of
from torchsan.observe.objects import entries_of, is_a, is_tensor, items_of, tensors_of
from torchsan.observe.sites import frame_place

MAX_BINDINGS = 3
MAX_TENSORS = 512
MAX_ELEMENTS = 1 << 20
_detach = torch._C.TensorBase.detach


def same_source(
    one: torch.Tensor, other: torch.Tensor, sides: tuple[ast.expr, ast.expr], frame: FrameType
) -> tuple[str, str, torch.Tensor] | None:
    """The names that both were copied from, with the memory these share; None unless both are equal copies of it."""
    if not _equal(one, other):
        return None
    left, right = (dict(_sources(side, frame)) for side in sides)
    for text, tensors in left.items():
        for another, held in right.items():
            if text == another:
                continue
            shared = {extent_of(tensor) for tensor in held}
            common = [tensor for tensor in tensors if extent_of(tensor) in shared]
            if common and _is_copy(one, common):
                return text, another, common[0]
    return None


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit by bit; values that are all one number are equal by chance."""
    if one.shape != other.shape or one.dtype != other.dtype or not 1 < one.numel() <= MAX_ELEMENTS:
        return False
    if one.device.type != "cpu" or other.device.type != "cpu":
        return False
    with torch.no_grad():
        flat = _detach(one).reshape(-1)
        return bool((flat != flat[0]).any()) and torch.equal(flat, _detach(other).reshape(-1))


def _is_copy(value: torch.Tensor, tensors: list[torch.Tensor]) -> bool:
    """Is it one of the tensors, or all of them in a row?"""
    with torch.no_grad():
        flat = _detach(value).reshape(-1)
        whole = sum(int(tensor.numel()) for tensor in tensors)
        if whole == flat.numel():
            start = tensors[0]
            return bool(torch.equal(flat[: start.numel()], _detach(start).reshape(-1)))
        alike = (tensor for tensor in tensors if tensor.numel() == flat.numel())
        return any(torch.equal(flat, _detach(tensor).reshape(-1)) for tensor in alike)


def _sources(node: ast.expr, frame: FrameType, depth: int = 0) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """The names that an expression was made of and hold tensors, through what they were bound to."""
    at = frame_place(frame)
    file = syntax.file_of(at.path)
    for part in _outermost_names(node):
        value = value_of(part, frame)
        held = list(_tensors(value))
        if held:
            yield ast.unparse(part), held
        if file is not None and isinstance(part, ast.Name) and depth < MAX_BINDINGS:
            found = syntax.binding(file, file.function(file.at(at) or node), part.id, at.line)
            if found is not None and isinstance(found[0], (ast.Assign, ast.AnnAssign)):
                yield from _sources(found[1], frame, depth + 1)


def _outermost_names(node: ast.AST) -> Iterator[ast.expr]:
    """`net` and `self.kept` in `flat(net.state_dict()) + flat(self.kept)`."""
    if isinstance(node, ast.Name):
        yield node
    elif isinstance(node, ast.Attribute):
        yield node
        yield from _outermost_names(node.value)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _outermost_names(child)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if value is NOTHING:
        return
    if is_tensor(value):
        yield value
    elif is_a(value, torch.nn.Module):
        yield from (tensor for _, tensor, kind in tensors_of(value) if kind == "parameter")
    else:
        held = entries_of(value) or items_of(value, MAX_TENSORS)
        yield from (item for _, item in held[:MAX_TENSORS] if is_tensor(item))
