"""Memory that two things share and each should have for itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax
from torchsan.fix.rewrites.writes import written_in
from torchsan.fix.source import Edit, Source

Found = Iterator[tuple[str, Iterable[Edit]]]
EXPANDING = {"expand", "expand_as", "broadcast_to", "broadcast_tensors"}
ARRAYS = {"numpy", "__array__", "asarray"}


def deep_copy(spot: Spot) -> Found:
    """A copy where a snapshot was meant."""
    source, statement = spot.source, spot.source.statement(spot.span)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        yield from _appended(source, statement.value)
        return
    if not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Return)) or statement.value is None:
        return
    for value in statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]:
        yield from _copied(source, value)


def _copied(source: Source, value: ast.expr) -> Found:
    module = _parameters_of(value)
    if module is not None:
        text = f"[p.detach().clone() for p in {source.segment(module)}]"
        yield text, [Edit(source.start(value), source.end(value), text)]
    owner = _receiver_of_to(value)
    if owner is not None:
        edits = _deep(source, owner)
        yield f"copy.deepcopy({source.segment(owner)})", edits
    yield f"copy.deepcopy({source.segment(value)})", _deep(source, value)


def _deep(source: Source, node: ast.expr) -> list[Edit]:
    start, end = source.start(node), source.end(node)
    return [*syntax.with_import(source, "copy"), Edit(start, start, "copy.deepcopy("), Edit(end, end, ")")]


def _appended(source: Source, call: ast.Call) -> Found:
    for argument in call.args:
        yield f"keep a copy: {source.segment(argument)}.clone()", [syntax.cloned(source, argument)]
        yield f"keep a copy: copy.deepcopy({source.segment(argument)})", _deep(source, argument)


def _parameters_of(value: ast.expr) -> ast.expr | None:
    """`model.parameters()` in `list(model.parameters())` or `[p for p in model.parameters()]`."""
    inner: ast.expr | None = None
    if isinstance(value, ast.Call) and syntax.called(value) in ("list", "tuple") and len(value.args) == 1:
        inner = value.args[0]
    elif isinstance(value, ast.ListComp) and isinstance(value.elt, ast.Name) and len(value.generators) == 1:
        inner = value.generators[0].iter
    is_call = isinstance(inner, ast.Call) and syntax.called(inner) == "parameters"
    return inner if is_call else None


def _receiver_of_to(value: ast.expr) -> ast.expr | None:
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("to", "cuda", "cpu")
    ):
        return value.func.value
    return None


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
