"""A backward that goes before the call that writes what it needs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax
from torchsan.fix.rewrites.order import asks_for_gradients, moved
from torchsan.fix.source import Edit

Found = Iterator[tuple[str, Iterable[Edit]]]


def backward_earlier(spot: Spot) -> Found:
    """A backward, and what clears the gradients for it, goes before the call that writes what it needs.

    All that stood between keeps its order to that call.
    """
    source, backward = spot.source, spot.source.statement(spot.span)
    block = source.block_of(backward) if backward is not None else []
    if backward is None or backward not in block:
        return
    above = block[: block.index(backward)]
    for writer in (s for s in above if _calls_writer(spot, s)):
        between = above[above.index(writer) + 1 :]
        moving = [s for s in between if _clears(s)]
        stays = [writer, *(s for s in between if s not in moving)]
        bound = {name for s in stays for name in syntax.stores(s)}
        if bound & syntax.loads(backward) or any(asks_for_gradients(source, s) for s in stays):
            continue
        edits = moved(source, [*moving, backward], writer)
        if edits is not None:
            yield f"call backward before line {writer.lineno}, which writes what it needs", edits


def _calls_writer(spot: Spot, statement: ast.stmt) -> bool:
    found = [one.source.function_of(one.source.statement(one.span) or one.source.tree) for one in spot.spots("mutated")]
    names = {function.name for function in found if function is not None}
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call)]
    return any(syntax.called(call) in names for call in calls) and isinstance(statement, (ast.Expr, ast.Assign))


def _clears(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and syntax.called(call) == "zero_grad"
