"""What a statement stores, hands out or keeps."""

from __future__ import annotations

import ast

from torchsan.fix.rewrites import syntax
from torchsan.fix.source import Function, Source
from torchsan.model import Span

KEEPING = {"append", "insert", "add", "put", "update", "extend", "appendleft", "setdefault", "push", "record", "store"}
# Calls whose result is the memory that they are given.
AROUND = {"from_numpy", "as_tensor", "asarray", "from_dlpack"}
COLLECTING = {"list", "tuple", "deque", "stack", "cat", "dict", "set"}


def stored_values(source: Source, statement: ast.stmt, span: Span) -> list[tuple[ast.expr, str]]:
    """What a statement, or the part of it that a span tells, stores, hands out or keeps, and how it is copied."""
    begin, _ = source.bounds(span)
    part = source.expression(span) if begin > source.start(statement) else None
    values = [part] if part is not None else _of_statement(statement)
    return [(inner, _way(source, inner)) for value in values for inner in _kept_by(value)]


def _of_statement(statement: ast.stmt) -> list[ast.expr]:
    value = getattr(statement, "value", None)
    if isinstance(value, (ast.Yield, ast.YieldFrom, ast.Await)):
        value = value.value
    return [value] if isinstance(value, ast.expr) else []


def _kept_by(value: ast.expr) -> list[ast.expr]:
    """The arguments of a call that keeps them, else the value itself."""
    if isinstance(value, ast.Call):
        name = syntax.called(value)
        given = [a for a in (*value.args, *(k.value for k in value.keywords)) if not isinstance(a, ast.Constant)]
        method = isinstance(value.func, ast.Attribute) and name in KEEPING
        if given and (method or name in COLLECTING):
            return given
    if isinstance(value, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return [value.elt]
    if isinstance(value, ast.DictComp):
        return [value.value]
    return [value]


def _way(source: Source, value: ast.expr) -> str:
    """`[x] * n` and `dict.fromkeys(names, x)` put one thing in many places."""
    made = [value, *given_back(source, value)]
    return "each" if any(is_repeated(one) or is_of_keys(one) for one in made) else "kept"


def given_back(source: Source, value: ast.expr) -> list[ast.expr]:
    """What a function of this file returns that a call names."""
    name = syntax.called(value) if isinstance(value, ast.Call) else ""
    makers = [n for n in ast.walk(source.tree) if isinstance(n, Function) and n.name == name]
    return [n.value for maker in makers for n in ast.walk(maker) if isinstance(n, ast.Return) and n.value is not None]


def is_of_keys(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and syntax.called(value) == "fromkeys" and len(value.args) == 2


def is_repeated(value: ast.expr) -> bool:
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Mult):
        return False
    return isinstance(value.left, ast.List) or isinstance(value.right, ast.List)


def same_stores(source: Source, statement: ast.stmt, value: ast.expr) -> list[ast.expr]:
    """Other places of the function that put the same thing into the same container: also as `frames = [x]`."""
    name = container_of(statement)
    if not name or not isinstance(value, (ast.Name, ast.Attribute)):
        return []
    found: list[ast.expr] = []
    for other in ast.walk(source.scope_of(statement)):
        if not isinstance(other, ast.stmt) or other is statement or container_of(other) != name:
            continue
        given = getattr(other, "value", None)
        parts = (
            given.elts
            if isinstance(given, (ast.List, ast.Tuple))
            else given.args
            if isinstance(given, ast.Call)
            else []
        )
        found += [part for part in parts if syntax.same(part, value)]
    return found


def container_of(statement: ast.stmt) -> str:
    """`frames` of `frames.append(x)` and of `frames = [x]`."""
    if isinstance(statement, ast.Assign) and isinstance(statement.value, (ast.List, ast.Tuple)):
        return ast.unparse(statement.targets[0]) if len(statement.targets) == 1 else ""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in KEEPING:
        return ast.unparse(call.func.value)
    return ""


def handed_out(source: Source, statement: ast.stmt, written: ast.expr) -> list[ast.expr]:
    """Where methods of the class return the attribute that one of them writes, or a view of it: to them it is a value.

    Who takes what a call returns and stores it later is a holder from the call on.
    """
    variable = syntax.variable_of(written)
    owner = next((n for n in source.above(statement) if isinstance(n, ast.ClassDef)), None)
    if owner is None or not isinstance(variable, ast.Attribute) or syntax.root_name(variable) != "self":
        return []
    own = ast.unparse(variable)
    given = [n.value for n in ast.walk(owner) if isinstance(n, (ast.Return, ast.Yield)) and n.value is not None]
    parts = [part for value in given for part in _parts(value)]
    return [part for part in parts if own in {ast.unparse(n) for n in _shown_as(part)}]


def _parts(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, (ast.Tuple, ast.List)):
        return [part for item in value.elts for part in _parts(item)]
    if isinstance(value, ast.Dict):
        return [part for item in value.values for part in _parts(item)]
    return [value]


def _shown_as(value: ast.expr) -> list[ast.expr]:
    """The variables whose memory a returned value may be: itself, what it is a view of, what it is made around."""
    found = [syntax.variable_of(value)]
    if isinstance(value, ast.Call) and syntax.called(value) in AROUND:
        found += [syntax.variable_of(argument) for argument in value.args]
    return [one for one in found if one is not None]
