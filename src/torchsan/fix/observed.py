"""A script that tells what calls at its outermost level leave behind: what they return, and their variables."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import CodeType
from typing import Any

# Names under which results are kept; no program uses them.
RESULT = "_torchsan_result_"
_HELPER = f'__import__("{__name__}", fromlist=["left"]).left'
_listeners: list[Callable[[str, dict[str, Any]], None]] = []


def listen(listener: Callable[[str, dict[str, Any]], None] | None) -> None:
    """Who is told the variables of an outermost function when it ends; None for nobody."""
    _listeners[:] = [listener] if listener is not None else []


def left(name: str, variables: dict[str, Any]) -> None:
    """Called by such a function at its end."""
    for listener in _listeners:
        listener(name, variables)


def compiled(content: bytes, path: str) -> CodeType:
    tree = ast.parse(content, path)
    functions = {s.name: s for s in tree.body if isinstance(s, ast.FunctionDef)}
    called: set[str] = set()
    _keep(tree.body, functions, called)
    for name in called:
        if not _is_generator(functions[name]):
            _tell(functions[name])
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def _keep(body: list[ast.stmt], functions: dict[str, ast.FunctionDef], called: set[str]) -> None:
    """Give what the script's own functions return at its outermost level a name; notes which they are."""
    for index, statement in enumerate(body):
        if isinstance(statement, ast.If):
            _keep(statement.body, functions, called)
        calls = (n.func for n in ast.walk(statement) if isinstance(n, ast.Call))
        inner = {func.id for func in calls if isinstance(func, ast.Name)} & set(functions)
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            called |= inner
        value = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in functions:
            name = ast.copy_location(ast.Name(f"{RESULT}{value.func.id}", ast.Store()), statement)
            body[index] = ast.copy_location(ast.Assign([name], value), statement)


def _is_generator(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(function))


def _tell(function: ast.FunctionDef) -> None:
    """`try: … finally:` tell the variables. What is put in stands on the line of the `def`, where nothing else does."""
    text = f"{_HELPER}({function.name!r}, dict(locals()))"
    told = ast.Expr(ast.parse(text, mode="eval").body)
    for node in ast.walk(told):
        if isinstance(node, (ast.expr, ast.stmt)):
            node.lineno = node.end_lineno = function.lineno
            node.col_offset, node.end_col_offset = function.col_offset, function.col_offset + 1
    whole = ast.Try(function.body, [], [], [told])
    function.body = [ast.copy_location(whole, told)]
