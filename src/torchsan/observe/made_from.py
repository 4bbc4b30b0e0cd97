"""What an expression in the source stands for, and which named tensors new memory was made from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torchsan.observe.names import local_names
from torchsan.observe.objects import attributes_of, entries_of, is_tensor, items_of
from torchsan.observe.tensors import memory_of

# Attributes of a tensor that are tensors; `x.device` tells nothing of the contents.
TENSORS = ("grad", "data", "T", "mT", "H", "real", "imag")


def made_from(node: ast.expr, frame: FrameType, memory: int) -> ast.expr | None:
    """`t` in `t.contiguous()`, `t / world`, `torch.stack(ts)`: the tensor, or tensors, from which new memory was made.

    None where the memory is that of a value with a name after all, or where no tensor went into it.
    """
    found: ast.expr | None = None
    for inner in _operands(node, frame):
        value = value_of(inner, frame)
        held = [value] if is_tensor(value) else [item for _, item in items_of(value, 64)]
        tensors = [item for item in held if is_tensor(item)]
        if any(memory_of(tensor) == memory for tensor in tensors):
            return None
        if tensors and found is None:
            found = inner
    return found if found is not node else None


def is_made_up(node: ast.expr) -> bool:
    """Made by a function, as `torch.zeros(1, device=x.device)` and `x.new_ones(1)` are, not computed from a value."""
    inner = node
    while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
        if inner.func.attr.startswith("new_"):
            return True
        inner = inner.func.value
        if isinstance(inner, ast.Name) and inner.id in ("torch", "np", "numpy"):
            return True
    return isinstance(inner, ast.Call)


def _operands(node: ast.AST, frame: FrameType) -> Iterator[ast.expr]:
    """The named values of an expression whose contents go into its result."""
    if isinstance(node, (ast.Name, ast.Subscript)):
        yield node
    elif isinstance(node, ast.Attribute):
        if node.attr in TENSORS or not is_tensor(value_of(node.value, frame)):
            yield node
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            yield from _operands(node.func.value, frame)
        for given in (*node.args, *(k.value for k in node.keywords)):
            yield from _operands(given, frame)
    else:
        for part in ast.iter_child_nodes(node):
            yield from _operands(part, frame)


def value_of(node: ast.expr, frame: FrameType) -> Any:
    """What a plain expression (`x`, `self.w`, `parts[0]`, `grads[name]`) stands for in a frame; None when unsure."""
    if isinstance(node, ast.Name):
        return local_names(frame).get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Attribute):
        owner = value_of(node.value, frame)
        if is_tensor(owner):
            return owner.grad if node.attr == "grad" else None
        held = attributes_of(owner)
        return held.get(node.attr, dict(entries_of(held.get("_parameters"))).get(node.attr))
    if isinstance(node, ast.Subscript):
        owner, key = value_of(node.value, frame), value_of(node.slice, frame)
        return dict(items_of(owner)).get(f"[{key!r}]")
    return None
