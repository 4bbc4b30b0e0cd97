"""Values that are stored with their graph: store them without it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.source import Edit, Source

Found = Iterator[tuple[str, Iterable[Edit]]]
MOST = 8
_ATOMS = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)


def detach_stored(spot: Spot) -> Found:
    """`.detach()` at the statement that stores: on what it adds, on what it reads of itself, on all that it binds.

    Which of them is right is not for the syntax to say: its run drops a cut that changes a number or a gradient.
    """
    source, statement = spot.source, spot.source.statement(spot.span)
    if statement is None:
        return
    seen: set[int] = set()
    for value in _stored(statement):
        if id(value) not in seen and len(seen) < MOST:
            seen.add(id(value))
            if _is_caught(source, value):
                # Its traceback has the variables of every function that it came through.
                end = source.end(value)
                yield f"store {_short(source, value)} without its traceback", [Edit(end, end, ".with_traceback(None)")]
            else:
                yield f"store {_short(source, value)} without its graph", _cut(source, value)


def detach_handed_out(spot: Spot) -> Found:
    """Where the holder is not the place to cut (`list(steps())`): `.detach()` on what the function that made the graph
    yields or returns."""
    source, statement = spot.source, spot.source.statement(spot.span)
    function = source.function_of(statement) if statement is not None else None
    if function is None:
        return
    handed = [
        value
        for node in ast.walk(function)
        if isinstance(node, (ast.Yield, ast.Return)) and node.value is not None and source.function_of(node) is function
        for value in _of_display(node.value)
    ]
    for value in handed[:MOST]:
        yield f"hand out {_short(source, value)} without its graph", _cut(source, value)


def _is_caught(source: Source, value: ast.expr) -> bool:
    """Is it the name of an exception that is being handled?"""
    return isinstance(value, ast.Name) and any(
        isinstance(around, ast.ExceptHandler) and around.name == value.id for around in source.above(value)
    )


def _stored(statement: ast.stmt) -> Iterator[ast.expr]:
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.expr):
        return
    if isinstance(statement, ast.AugAssign):
        yield value
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from _carried(value, {ast.unparse(target) for target in targets})
        yield from _of_display(value)
    elif isinstance(value, ast.Call):
        for argument in _arguments(value):
            yield from _of_display(argument)
        yield from _loaded(value)


def _carried(value: ast.expr, names: set[str]) -> Iterator[ast.expr]:
    """`average = 0.9 * average + 0.1 * loss`: whole where it is an expression; else what is read of itself."""
    reads = [node for node in ast.walk(value) if isinstance(node, _ATOMS) and ast.unparse(node) in names]
    if isinstance(value, (ast.BinOp, ast.IfExp)):
        yield value
    yield from reads


def _of_display(value: ast.expr) -> Iterator[ast.expr]:
    """`(step, loss)`, `{"loss": loss}`, `Record(step, loss)`, `[v + g for …]`: what is inside; else the value."""
    if isinstance(value, (ast.Tuple, ast.List, ast.Set)):
        for element in value.elts:
            yield from _of_display(element)
    elif isinstance(value, ast.Dict):
        for element in value.values:
            yield from _of_display(element)
    elif isinstance(value, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        yield from _of_display(value.elt)
    elif isinstance(value, (ast.BinOp, *_ATOMS)):
        if isinstance(value, ast.Call) and not isinstance(value.func, ast.Attribute):
            # A constructor keeps what it is given; a function may have given a tensor.
            for argument in _arguments(value):
                yield from _of_display(argument)
        yield value


def _loaded(call: ast.Call) -> Iterator[ast.expr]:
    for argument in _arguments(call):
        for node in ast.walk(argument):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield node


def _arguments(call: ast.Call) -> list[ast.expr]:
    given = (*call.args, *(keyword.value for keyword in call.keywords))
    return [one for one in given if not isinstance(one, (ast.Constant, ast.Starred, ast.Lambda))]


def _cut(source: Source, value: ast.expr) -> list[Edit]:
    begin, end = source.start(value), source.end(value)
    if isinstance(value, _ATOMS):
        return [Edit(end, end, ".detach()")]
    return [Edit(begin, begin, "("), Edit(end, end, ").detach()")]


def _short(source: Source, value: ast.expr) -> str:
    text = " ".join(source.segment(value).split())
    return text if len(text) <= 40 else text[:39] + "…"
