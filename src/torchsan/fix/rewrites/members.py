"""Writes to the members of a list, one after another: the list gets new members."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax
from torchsan.fix.rewrites.writes import twins, written_in
from torchsan.fix.source import Edit, Source

Found = Iterator[tuple[str, Iterable[Edit]]]


def listed_results(spot: Spot) -> Found:
    """`for p, g in zip(ps, gs): p.sub_(g)` as `for i, (p, g) in enumerate(zip(ps, gs)): ps[i] = p = p.sub(g)`."""
    source, statement = spot.source, spot.source.statement(spot.span)
    loop = source.loop_of(statement) if statement is not None else None
    written = written_in(spot, statement) if statement is not None else None
    if not isinstance(loop, ast.For) or not isinstance(written, ast.Name) or statement is None:
        return
    many = _members(loop.iter, loop.target, written.id)
    if many is None or not isinstance(many, (ast.Name, ast.Attribute)):
        return
    counted, index = _counted(source, loop)
    place = f"{source.segment(many)}[{index}] = "
    for title, edits in twins(spot, unread=True):
        at = source.start(statement)
        yield f"{place}{title}", [*counted, *edits, Edit(at, at, place)]


def _members(iterated: ast.expr, target: ast.expr, name: str) -> ast.expr | None:
    """The list whose members a name of the loop is given."""
    if isinstance(target, ast.Name):
        return iterated if target.id == name and not isinstance(iterated, ast.Call) else None
    if not isinstance(target, ast.Tuple) or not isinstance(iterated, ast.Call):
        return None
    called = syntax.called(iterated)
    if called == "enumerate" and len(target.elts) == 2 and iterated.args:
        return _members(iterated.args[0], target.elts[1], name)
    if called == "zip" and len(iterated.args) == len(target.elts):
        pairs = zip(iterated.args, target.elts, strict=True)
        return next((given for given, one in pairs if isinstance(one, ast.Name) and one.id == name), None)
    return None


def _counted(source: Source, loop: ast.For) -> tuple[list[Edit], str]:
    """The edits that make a loop count its turns, and the name of the count."""
    iterated = loop.iter
    if isinstance(iterated, ast.Call) and syntax.called(iterated) == "enumerate" and len(iterated.args) == 1:
        target = loop.target
        if isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
            return [], target.elts[0].id
    name = syntax.free_name("i", syntax.names_in(source.scope_of(loop)))
    shown = source.segment(loop.target)
    inner = f"({shown})" if isinstance(loop.target, ast.Tuple) and not shown.startswith("(") else shown
    start, end = source.start(iterated), source.end(iterated)
    return [
        Edit(source.start(loop.target), source.end(loop.target), f"{name}, {inner}"),
        Edit(start, start, "enumerate("),
        Edit(end, end, ")"),
    ], name
