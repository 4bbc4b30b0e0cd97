"""Plain questions about the order of statements: what comes after a statement, and what it reads and binds."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchsan.check.modelling.names import words

Body = list[ast.stmt]
_PARTS = ("body", "orelse", "finalbody")
# Asked of a tensor without reading its elements.
NO_VALUES = words(
    """shape device dtype size dim ndim numel new_zeros new_ones new_full new_empty new_tensor requires_grad
    is_contiguous stride element_size data_ptr"""
)


def functions_of(tree: ast.Module) -> Iterator[tuple[str, ast.arguments | None, Body]]:
    """Each function with its arguments and body, and the file's own statements."""
    yield "", None, tree.body
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.args, node.body


def blocks_of(body: Body) -> Iterator[Body]:
    """A body and the bodies inside it, but for those of functions and classes defined there."""
    yield body
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for part in _PARTS:
            below = getattr(node, part, None)
            if isinstance(below, list) and below and isinstance(below[0], ast.stmt):
                yield from blocks_of(below)
        for handler in getattr(node, "handlers", ()):
            yield from blocks_of(handler.body)


def simple_statements(node: ast.stmt) -> list[ast.stmt]:
    """A statement, or those inside it that hold no others."""
    if not hasattr(node, "body"):
        return [node]
    return [s for block in blocks_of([node]) for s in block if not hasattr(s, "body")]


def comes_after(body: Body, statement: ast.stmt) -> list[ast.stmt] | None:
    """What may run after a statement, the rest of the blocks around it; None when it is not in the body.

    The other side of an `if` around it does not come after it.
    """
    found = _from(body, statement)
    return None if found is None else [node for node in found if node is not statement]


def _from(body: Body, statement: ast.stmt) -> list[ast.stmt] | None:
    """A statement and what may run after it."""
    for index, node in enumerate(body):
        inside = [node] if node is statement else _after_inside(node, statement)
        if inside is not None:
            return inside if leaves(inside) else inside + body[index + 1 :]
    return None


def _after_inside(node: ast.stmt, statement: ast.stmt) -> list[ast.stmt] | None:
    parts = [getattr(node, part, None) for part in _PARTS] + [h.body for h in getattr(node, "handlers", ())]
    for part in parts:
        found = _from(part, statement) if part else None
        if found is not None:
            return found
    return None


def names_read(node: ast.AST) -> set[str]:
    """Names whose elements a statement may read: not those of which it asks a shape or the like."""
    about = {id(n.value) for n in ast.walk(node) if isinstance(n, ast.Attribute) and n.attr in NO_VALUES}
    return {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in about
    }


def names_bound(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """Calls that run where a statement runs: not those in a function that it defines."""
    pending = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, ast.Call):
            yield item
        if not isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            pending.extend(ast.iter_child_nodes(item))


def leaves(body: Body) -> bool:
    """Whether what comes after a body is not reached."""
    return any(isinstance(node, ast.Return | ast.Raise | ast.Continue | ast.Break) for node in body)


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)


def is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def root_of(node: ast.expr) -> str:
    """The name at the beginning of `x[0].data`."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
