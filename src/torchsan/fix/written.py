"""What a statement writes in place, and for whom."""

from __future__ import annotations

import ast

from torchsan.fix.rewrites import syntax
from torchsan.fix.source import Function, Source
from torchsan.model import Span


def is_for_others(source: Source, function: Function, statement: ast.stmt, name: str) -> bool:
    """Nothing in the function reads the written value later or returns it: only the caller can be meant to see it."""
    if not isinstance(statement, (ast.Expr, ast.AugAssign)):
        return False
    end = source.end(statement)
    later = (n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load))
    return not any(source.start(node) >= end for node in later) and source.loop_of(statement) is None


def written_by(source: Source, statement: ast.stmt, span: Span) -> ast.expr | None:
    """The expression whose memory the statement writes; None where a call of somebody else's does it."""
    if isinstance(statement, ast.AugAssign):
        return statement.target
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], (ast.Subscript, ast.Attribute)):
        calls = [n for n in ast.walk(statement.value) if isinstance(n, ast.Call) and syntax.is_inplace_call(n)]
        if not calls:
            return statement.targets[0]
    begin, end = source.bounds(span)
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and syntax.is_inplace_call(n)]
    inside = [n for n in calls if begin <= source.start(n) and source.end(n) <= end] or calls
    for call in sorted(inside, key=source.end):
        out = syntax.out_of(call)
        if out is not None:
            return out
        if syntax.is_module_function(call):
            return call.args[0] if call.args else None
        return call.func.value if isinstance(call.func, ast.Attribute) else None
    return None


def own_attribute(written: ast.expr) -> str | None:
    """`counts` of `self.counts[0]`."""
    node: ast.AST = written
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        inner = node.func if isinstance(node, ast.Call) else node.value
        if isinstance(node, ast.Attribute) and isinstance(inner, ast.Name):
            return node.attr
        node = inner
    return None


def arguments(function: Function) -> set[str]:
    return {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
