"""A write that autograd does not see, made so that it does: a new value, without `.data`, `detach()` or no_grad."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax, writes
from torchsan.fix.source import Edit, Source

Found = Iterator[tuple[str, Iterable[Edit]]]


def tracked_write(spot: Spot) -> Found:
    """The out-of-place twin of the write, of the value itself; its gradient then goes where the value goes."""
    source, statement = spot.source, spot.source.statement(spot.span)
    if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.Expr)) or writes.other_names(spot, statement) != []:
        return
    hiding = _hiding(spot, statement)
    block = _silenced(source, statement)
    if not hiding and block is None:
        return
    plain = source.edited([Edit(source.end(n), source.end(outer), "") for n, outer in hiding]) if hiding else source
    now = plain.statement_at(statement.lineno) if plain is not None else None
    if plain is None or now is None:
        return
    first, last = now.lineno, now.end_lineno or now.lineno
    begin, end = (plain.start(now) - plain.line_start(first), plain.end(now) - plain.line_start(last))
    shown = replace(spot.span, line=first, column=begin + 1, end_line=last, end_column=end + 1)
    for title, edits in writes.twins(replace(spot, source=plain, span=shown)):
        after = plain.edited(tuple(edits))
        made = after.statement_at(statement.lineno) if after is not None else None
        if after is not None and made is not None:
            around = block or statement
            text = after.segment(made)
            yield f"{title}, seen by autograd", [Edit(source.start(around), source.end(around), text)]


def _hiding(spot: Spot, statement: ast.stmt) -> list[tuple[ast.expr, ast.expr]]:
    """`x.data` and `x.detach()` in what is written, each with the x."""
    found: list[tuple[ast.expr, ast.expr]] = []
    written = writes.written_in(spot, statement)
    while written is not None:
        if isinstance(written, ast.Attribute) and written.attr == "data":
            found.append((written.value, written))
        elif isinstance(written, ast.Call) and syntax.called(written) == "detach":
            if not isinstance(written.func, ast.Attribute) or written.args:
                return []
            found.append((written.func.value, written))
        inner = written.func if isinstance(written, ast.Call) else written
        written = inner.value if isinstance(inner, (ast.Attribute, ast.Subscript)) else None
    return found[:1]


def _silenced(source: Source, statement: ast.stmt) -> ast.With | None:
    """The no_grad block that is there for this statement alone."""
    block = source.parents.get(statement)
    if not isinstance(block, ast.With) or block.body != [statement] or len(block.items) != 1:
        return None
    call = block.items[0].context_expr
    silent = isinstance(call, ast.Call) and syntax.called(call) == "no_grad"
    return block if silent and source.owns_its_lines(block) else None
