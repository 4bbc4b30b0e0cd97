"""What a function does with `batch["image"]` or `self.state` behind a statement, by the text alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchsan.observe import expressions as syntax
from torchsan.observe.holders.reading import reads_values


def read_behind(file: syntax.File, node: ast.AST, text: str) -> ast.expr | None:
    """The first read of an expression's value behind the statement, before it or its root is bound anew."""
    statement = file.statement(node)
    if statement is None:
        return None
    root = text.partition(".")[0].partition("[")[0]
    # `images[i]` is another one when `i` is.
    others = {part.id for part in ast.walk(ast.parse(text)) if isinstance(part, ast.Name)} - {root}
    for other in _behind(file, statement):
        shown = ast.unparse(other)
        if shown in others and isinstance(other.ctx, ast.Store):  # type: ignore[attr-defined]
            return None
        if shown not in (text, root):
            continue
        if isinstance(other.ctx, ast.Load):  # type: ignore[attr-defined]
            if shown == text and reads_values(other, file):
                return other
        elif not isinstance(file.parents.get(other), ast.AugAssign):
            return None
    return None


def conditional_stores(file: syntax.File, node: ast.AST) -> Iterator[tuple[ast.Assign, ast.expr, ast.expr]]:
    """`if …: x = y` behind the statement, on a condition that it does not stand under itself."""
    statement = file.statement(node)
    above = set(file.up(statement)) if statement is not None else set()
    for other in file.within(file.function(node)):
        if not isinstance(other, ast.Assign) or statement is None or other.lineno <= statement.lineno:
            continue
        if any(isinstance(around, ast.If) and around not in above for around in file.up(other)):
            for target in other.targets:
                yield other, target, other.value


def _behind(file: syntax.File, statement: ast.stmt) -> list[ast.expr]:
    """Names, attributes and entries in the order of their lines; of other branches of an `if` none."""
    parts, end = (ast.Name, ast.Attribute, ast.Subscript), statement.end_lineno or 0
    later = [n for n in file.within(file.function(statement)) if isinstance(n, parts) and n.lineno > end]
    found = [node for node in later if not _elsewhere(file, node, statement)]
    found.sort(key=lambda node: (node.lineno, isinstance(node.ctx, ast.Store), node.col_offset))
    return list(found)


def _elsewhere(file: syntax.File, node: ast.AST, statement: ast.stmt) -> bool:
    """In the branch that is not taken when the statement's is."""
    below = {statement, *file.up(statement)}
    for around in file.up(node):
        if isinstance(around, ast.If) and around in below:
            in_body = any(child in below for child in around.body)
            own = {node, *file.up(node)}
            return in_body != any(child in own for child in around.body)
    return False
