"""Memory that two things share and each should have for itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax
from torchsan.fix.rewrites.writes import written_in
from torchsan.fix.source import Edit

Found = Iterator[tuple[str, Iterable[Edit]]]
EXPANDING = {"expand", "expand_as", "broadcast_to", "broadcast_tensors"}
ARRAYS = {"numpy", "__array__", "asarray"}


def own_memory(spot: Spot) -> Found:
    """`clone()` after `expand`: every row gets memory of its own."""
    source, statement = spot.source, spot.source.statement(spot.span)
    for node in ast.walk(statement) if statement is not None else ():
        if isinstance(node, ast.Call) and syntax.called(node) in EXPANDING:
            at = source.end(node)
            yield f"{syntax.called(node)}(…).clone()", [Edit(at, at, ".clone()")]


def array_copy(spot: Spot) -> Found:
    """Hand out a copy of the memory, not the memory."""
    source, statement = spot.source, spot.source.statement(spot.span)
    for node in ast.walk(statement) if statement is not None else ():
        if not isinstance(node, ast.Call):
            continue
        at = source.end(node)
        if syntax.called(node) in ARRAYS:
            yield f"{syntax.called(node)}(…).copy()", [Edit(at, at, ".copy()")]
        elif syntax.called(node) in ("from_numpy", "as_tensor", "from_dlpack", "to_dlpack", "frombuffer"):
            yield f"{syntax.called(node)}(…).clone()", [Edit(at, at, ".clone()")]


def fresh_default(spot: Spot) -> Found:
    """`None` as the default, and a new tensor in every call."""
    source, statement = spot.source, spot.source.statement(spot.span)
    function = source.function_of(statement) if statement is not None else None
    if statement is None or function is None:
        return
    written = written_in(spot, statement)
    variable = syntax.variable_of(written) if written is not None else None
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True))
    pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    for argument, default in pairs:
        if isinstance(variable, ast.Name) and argument.arg == variable.id and body:
            name, made = argument.arg, source.segment(default)
            edit = syntax.insert_before(source, body[0], f"{name} = {made} if {name} is None else {name}")
            if edit is not None:
                yield (
                    f"{name}=None, made anew in every call",
                    [Edit(source.start(default), source.end(default), "None"), edit],
                )


def clone_global(spot: Spot) -> Found:
    """A local copy of a constant of the module, for the function that writes it."""
    source, statement = spot.source, spot.source.statement(spot.span)
    function = source.function_of(statement) if statement is not None else None
    if statement is None or function is None:
        return
    written = written_in(spot, statement)
    variable = syntax.variable_of(written) if written is not None else None
    if not isinstance(variable, ast.Name) or not source.owns_its_lines(statement):
        return
    local = variable.id.lower() if variable.id.lower() != variable.id else f"own_{variable.id}"
    if local in syntax.names_in(function) | {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)}:
        return
    uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == variable.id]
    uses = [n for n in uses if source.start(n) >= source.start(statement)]
    edit = syntax.insert_before(source, statement, f"{local} = {variable.id}.clone()")
    if edit is not None:
        yield (
            f"write to {local} = {variable.id}.clone()",
            [edit, *(Edit(source.start(n), source.end(n), local) for n in uses)],
        )
