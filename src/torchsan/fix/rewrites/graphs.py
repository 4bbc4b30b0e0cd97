"""Graphs that are cut where they should not be, or not cut where they should."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax
from torchsan.fix.source import Edit, Source

Found = Iterator[tuple[str, Iterable[Edit]]]
CUTS = {"detach", "item", "tolist", "numpy"}


def detach_carried(spot: Spot) -> Found:
    """Cut the graph of what goes from one turn of the loop to the next."""
    source, backward = spot.source, spot.source.statement(spot.span)
    loop = source.loop_of(backward) if backward is not None else None
    if backward is not None and loop is not None:
        for name in _carried(source, loop):
            edit = syntax.insert_after(source, backward, f"{name} = {name}.detach()")
            if edit is not None:
                yield f"cut the graph between turns: {name} = {name}.detach()", [edit]
            edit = syntax.insert_after(source, backward, f"{name} = tuple(part.detach() for part in {name})")
            if edit is not None:
                yield f"cut the graph between turns: detach each part of {name}", [edit]
    for name, statement, holder in _kept_between_calls(spot):
        for title, value in (
            (name, f"{name}.detach()"),
            (f"each part of {name}", f"tuple(p.detach() for p in {name})"),
        ):
            edit = syntax.insert_after(holder, statement, f"{name} = {value}")
            if edit is not None:
                yield f"cut the graph between calls: detach {title}", [edit]
    yield from _at_entry(spot)
    for other in spot.spots("cause"):
        yield from _shared_with_first(other)
    for other in spot.spots("origin"):
        yield from _arguments(other)


def _kept_between_calls(spot: Spot) -> Iterator[tuple[str, ast.stmt, Source]]:
    """`out, self.hidden = self.cell(x, self.hidden)`: an attribute that carries the graph from call to call."""
    sources = dict.fromkeys([*(other.source for other in spot.spots("origin")), spot.source])
    for source in sources:
        for statement in (n for n in ast.walk(source.tree) if isinstance(n, ast.Assign)):
            kept = {ast.unparse(n) for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Attribute)}
            read = {ast.unparse(n) for n in ast.walk(statement.value) if isinstance(n, ast.Attribute)}
            for name in sorted(kept & read):
                yield name, statement, source


def _at_entry(spot: Spot) -> Found:
    """A function that calls backward begins with what an earlier call left behind, without its graph."""
    source, backward = spot.source, spot.source.statement(spot.span)
    function = source.function_of(backward) if backward is not None else None
    if function is None:
        return
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    kept = {name: None for name, statement, _ in _kept_between_calls(spot) if statement in ast.walk(function)}
    for name in kept:
        for title, value in (
            (name, f"{name}.detach()"),
            (f"each part of {name}", f"tuple(p.detach() for p in {name})"),
        ):
            edit = syntax.insert_before(source, body[0], f"{name} = {value}")
            if edit is not None:
                yield f"cut the graph where a call begins: detach {title}", [edit]


def _shared_with_first(spot: Spot) -> Found:
    """The loss of an earlier backward takes what a later one needs with its graph: it gets the value only."""
    source, backward = spot.source, spot.source.statement(spot.span)
    if backward is None:
        return
    block = source.block_of(backward)
    above = [s for s in block[: block.index(backward)] if isinstance(s, ast.Assign)]
    made = {name for s in above if isinstance(s.value, ast.Call) for name in syntax.stores(s)}
    for maker in (s for s in above if syntax.stores(s) & syntax.loads(backward)):
        for call in (n for n in ast.walk(maker) if isinstance(n, ast.Call)):
            for argument in call.args:
                if isinstance(argument, ast.Name) and argument.id in made:
                    at = source.end(argument)
                    yield f"give {argument.id}.detach() to the first loss", [Edit(at, at, ".detach()")]


def _carried(source: Source, loop: ast.For | ast.While) -> list[str]:
    """Names that a turn reads before it binds them again."""
    found: list[str] = []
    bound = syntax.stores(loop.target) if isinstance(loop, ast.For) else set()
    later = {name for s in loop.body for name in syntax.stores(s)}
    for statement in loop.body:
        read = syntax.loads(statement)
        if isinstance(statement, ast.AugAssign):
            read = read | syntax.stores(statement)
        found += [name for name in sorted(read & later) if name not in bound and name not in found]
        bound = bound | syntax.stores(statement)
    return found


def _arguments(spot: Spot) -> Found:
    """What the op is given from before: `cell(x, self.hidden.detach())`."""
    source, call = spot.source, spot.source.expression(spot.span)
    for node in ast.walk(call) if call is not None else ():
        if isinstance(node, ast.Call):
            for argument in node.args:
                if isinstance(argument, (ast.Name, ast.Attribute, ast.Subscript)):
                    at = source.end(argument)
                    yield f"take {source.segment(argument)}.detach()", [Edit(at, at, ".detach()")]


def retained_graph(spot: Spot) -> Found:
    """The first of two backwards that stand one after the other leaves their graph to the second."""
    source, first = spot.source, spot.source.statement(spot.span)
    for later in spot.spots("needed"):
        second = later.source.statement(later.span) if later.source.path == source.path else None
        block = source.block_of(first) if first is not None else []
        # A graph that comes from an earlier turn of a loop may be meant to end there: only this order tells.
        if first is None or second not in block or block.index(second) <= block.index(first):
            continue
        for call in (n for n in ast.walk(first) if isinstance(n, ast.Call) and syntax.called(n) == "backward"):
            if not any(k.arg == "retain_graph" for k in call.keywords):
                at = source.end(call) - 1
                comma = ", " if call.args or call.keywords else ""
                yield (
                    "leave the graph to the second backward: retain_graph=True",
                    [Edit(at, at, f"{comma}retain_graph=True")],
                )


def keep_graph(spot: Spot) -> Found:
    """Leave out the call that drops the graph."""
    source, statement = spot.source, spot.source.statement(spot.span)
    begin, end = source.bounds(spot.span)
    for node in ast.walk(statement) if statement is not None else ():
        if not isinstance(node, (ast.Call, ast.Attribute)) or source.end(node) < begin or source.start(node) > end:
            continue
        func = node.func if isinstance(node, ast.Call) else node
        if isinstance(node, ast.Call) and isinstance(func, ast.Attribute) and func.attr in CUTS and not node.args:
            kept = func.value
        elif isinstance(node, ast.Attribute) and node.attr == "data":
            kept = node.value
        elif isinstance(node, ast.Call) and syntax.called(node) in ("tensor", "float") and len(node.args) == 1:
            kept = _before_cuts(node.args[0])
            yield (
                f"use {source.segment(kept)} itself",
                [Edit(source.start(node), source.end(node), source.segment(kept))],
            )
            continue
        else:
            continue
        yield f"use {source.segment(kept)} itself", [Edit(source.end(kept), source.end(node), "")]


def _before_cuts(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CUTS:
        node = node.func.value
    return node


def retain_grad(spot: Spot) -> Found:
    """Ask torch to keep the gradient of a tensor that is not a leaf."""
    source, read = spot.source, spot.source.expression(spot.span)
    while isinstance(read, ast.Attribute) and read.attr != "grad":
        read = read.value
    if not isinstance(read, ast.Attribute) or not isinstance(read.value, ast.Name):
        return
    name = read.value.id
    scope = source.scope_of(read)
    makers = [
        n
        for n in ast.walk(scope)
        if isinstance(n, ast.Assign) and name in syntax.stores(n) and source.end(n) < source.start(read)
    ]
    if makers:
        edit = syntax.insert_after(source, max(makers, key=source.start), f"{name}.retain_grad()")
        if edit is not None:
            yield f"keep its gradient: {name}.retain_grad()", [edit]
