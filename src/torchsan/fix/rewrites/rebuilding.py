"""Values with a graph that are made once and used in every pass."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax
from torchsan.fix.rewrites.order import depends
from torchsan.fix.source import Edit, Function, Source

Found = Iterator[tuple[str, Iterable[Edit]]]


def rebuild(spot: Spot) -> Found:
    """A value with a graph that is made once and used in every pass: make it in each pass, or cut it off."""
    yield from _hoisted(spot)
    for statement, owner in _kept_by_constructor(spot.source):
        yield from _into_forward(spot.source, statement, owner)
    for statement, _ in _kept_by_constructor(spot.source):
        value = statement.value
        text = syntax.as_receiver(spot.source.segment(value), value)
        edit = Edit(spot.source.start(value), spot.source.end(value), f"{text}.detach()")
        yield f"cut it off where it is kept: {spot.source.segment(statement.targets[0])} = ….detach()", [edit]


def _hoisted(spot: Spot) -> Found:
    """An assignment above the loop of this backward, whose graph every turn uses, goes into the loop."""
    source, backward = spot.source, spot.source.statement(spot.span)
    loop = source.loop_of(backward) if backward is not None else None
    if loop is None:
        return
    block = source.block_of(loop)
    used = {name for s in loop.body for name in syntax.loads(s)} - {n for s in loop.body for n in syntax.stores(s)}
    at = block.index(loop)
    for statement in reversed(block[:at]):
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        names = syntax.stores(statement)
        if "optim" in ast.unparse(statement.value):
            continue  # an optimizer has state of its own and no graph
        if not names & used or not source.owns_its_lines(statement) or not source.owns_its_lines(loop.body[0]):
            continue
        text = source.segment(statement)
        inside = syntax.insert_before(source, loop.body[0], text)
        if "\n" in text or inside is None:
            continue
        if any(depends(source, statement, s) for s in block[block.index(statement) + 1 : at]):
            # Others above the loop read it: they keep theirs.
            yield f"compute {', '.join(sorted(names & used))} anew in every turn of the loop", [inside]
            continue
        first, last = source.line_start(statement.lineno), source.line_start((statement.end_lineno or 0) + 1)
        yield f"compute {', '.join(sorted(names))} in every turn of the loop", [Edit(first, last, ""), inside]


def _kept_by_constructor(source: Source) -> Iterator[tuple[ast.Assign, ast.ClassDef]]:
    """`self.x = self.module(…)` in a constructor: the result of a forward, kept with its graph."""
    for owner in (n for n in ast.walk(source.tree) if isinstance(n, ast.ClassDef)):
        maker = _method(owner, "__init__")
        for statement in maker.body if maker is not None else ():
            if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
                continue
            target, func = statement.targets[0], statement.value.func
            is_kept = isinstance(target, ast.Attribute) and syntax.root_name(target) == "self"
            if is_kept and isinstance(func, ast.Attribute) and syntax.root_name(func) == "self":
                yield statement, owner


def _method(owner: ast.ClassDef, name: str) -> Function | None:
    return next((n for n in owner.body if isinstance(n, Function) and n.name == name), None)


def _into_forward(source: Source, statement: ast.Assign, owner: ast.ClassDef) -> Found:
    target, forward = statement.targets[0], _method(owner, "forward")
    if forward is None or not source.owns_its_lines(statement):
        return
    reads = [n for n in ast.walk(forward) if isinstance(n, ast.Attribute) and syntax.same(n, target)]
    text = source.segment(statement)
    body = [s for s in forward.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    maker = source.function_of(statement)
    if not reads or "\n" in text or not body or maker is None or len(maker.body) < 2:
        return
    own = {a.arg for a in maker.args.args[1:]}
    inside = syntax.insert_before(source, body[0], text)
    if inside is not None and not own & syntax.loads(statement):
        # Nothing is moved from one function to another: the constructor may be followed by other readers.
        yield f"compute {source.segment(target)} anew in every forward", [inside]
