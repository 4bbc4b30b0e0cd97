"""The value of an expression in a frame that runs, without running anything of the program's."""

from __future__ import annotations

import ast
from types import FrameType
from typing import Any

import torch

from torchsan.observe import expressions as syntax
from torchsan.observe.names import local_names
from torchsan.observe.objects import (
    MODULE_PARTS,
    attributes_of,
    class_attribute,
    entries_of,
    is_a,
    is_exact_tensor,
    is_exactly,
    is_tensor,
)

NOTHING = object()


def value_of(node: ast.AST | None, frame: FrameType) -> Any:
    """What `x`, `self.x`, `x[0]`, `x["k"]` is now; NOTHING when it cannot be told from dictionaries alone."""
    return _value(node, local_names(frame), frame.f_globals)


def _value(node: ast.AST | None, names: dict[str, Any], namespace: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names.get(node.id, namespace.get(node.id, NOTHING))
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, names, namespace)
        return NOTHING if owner is NOTHING else attribute(owner, node.attr)
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else _value(node.slice, names, namespace)
        return entry(_value(node.value, names, namespace), key) if is_exactly(key, (int, str)) else NOTHING
    return NOTHING


def entry(owner: Any, key: Any) -> Any:
    """An entry of a plain container, or of a container of modules."""
    if is_a(owner, torch.nn.Module):
        owner = dict(entries_of(attributes_of(owner).get("_modules")))
        key = str(key)
    if is_a(owner, dict):
        return dict.get(owner, key, NOTHING)
    if (type(owner) is list or type(owner) is tuple) and type(key) is int and -len(owner) <= key < len(owner):
        return owner[key]
    return NOTHING


def attribute(owner: Any, name: str) -> Any:
    """An attribute that lies in a dictionary: of the object, of a module's parts, of a class."""
    if is_exact_tensor(owner) and name in ("grad", "data"):
        return NOTHING if name == "grad" and owner.grad is None else owner.grad if name == "grad" else owner
    held = attributes_of(owner) if not is_a(owner, type) else {}
    if is_a(owner, torch.nn.Module):
        for part in MODULE_PARTS:
            inner = dict(entries_of(held.get(part)))
            if name in inner:
                return inner[name]
    if name in held:
        return held[name]
    found = class_attribute(owner if is_a(owner, type) else type(owner), name)
    return found if is_tensor(found) else NOTHING


def memory_expression(node: ast.AST) -> ast.expr | None:
    """`model.weight` for `model.weight.detach().numpy()`: the expression whose memory a chain of views has."""
    return syntax.receiver(node) if isinstance(node, ast.expr) else None


def root_name(node: ast.AST | None) -> str:
    """`x` for `x[i].y(…)`; empty when there is no name at the root."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call, ast.Starred)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
