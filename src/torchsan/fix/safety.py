"""Which edits need no run to be trusted: those after which nothing can be told apart but the mended fault.

A write that goes to new memory is such an edit where nobody but the written name can see the old memory. That is
shown here from the syntax and the effects table; where it cannot be shown, the edit is not safe.
"""

from __future__ import annotations

import ast

from torchsan.check.modelling.names import MAY_SHARE
from torchsan.effects import lookup
from torchsan.fix.candidates import Candidate
from torchsan.fix.carriers import works_on_new_memory
from torchsan.fix.rewrites import syntax
from torchsan.fix.source import Function, Source

_ONLY_VALUES = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp)


def is_safe(candidate: Candidate) -> bool:
    judge = _JUDGES.get(candidate.rewrite)
    return judge is not None and candidate.span is not None and judge(candidate)


def _copy_of_a_snapshot(candidate: Candidate) -> bool:
    """A deep copy is what a snapshot is meant to be."""
    return True


def _unseen_write(candidate: Candidate) -> bool:
    """The statement writes a variable that alone holds its memory."""
    assert candidate.span is not None
    source = candidate.source
    statement = source.statement(candidate.span)
    written = _written_name(statement)
    if statement is None or written is None:
        return False
    scope = source.scope_of(statement)
    return _all_fresh(scope, written, statement) and not _shared_before(source, scope, written, statement)


def _written_name(statement: ast.stmt | None) -> str | None:
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    call = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
    if not isinstance(call, ast.Call) or not syntax.is_inplace_call(call):
        return None
    receiver: ast.expr | None
    if syntax.is_module_function(call):
        receiver = call.args[0] if call.args and syntax.out_of(call) is None else None
    else:
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(receiver, ast.Name):
        return None
    if isinstance(statement, ast.Assign):
        # `y = x.mul_(2)` makes y another name of x: only `x = x.mul_(2)` stays alone.
        targets = statement.targets
        alone = len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == receiver.id
        return receiver.id if alone else None
    return receiver.id


def _all_fresh(scope: ast.AST, name: str, write: ast.stmt) -> bool:
    """Every value that the name is given in this scope is new memory; and the name is bound here."""
    found = False
    for node in ast.walk(scope):
        if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
            return False
        if isinstance(node, ast.arg) and node.arg == name:
            return False
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            found = True
    makers = [n for n in ast.walk(scope) if isinstance(n, ast.stmt) and n is not write and _binds(n, name)]
    return found and bool(makers) and all(_gives_new_memory(maker, name) for maker in makers)


def _binds(statement: ast.stmt, name: str) -> bool:
    if isinstance(statement, Function | ast.ClassDef):
        return statement.name == name
    inner = [c for c in ast.iter_child_nodes(statement) if not isinstance(c, (ast.stmt, ast.ExceptHandler))]
    return any(name in syntax.stores(child) for child in inner)


def _gives_new_memory(maker: ast.stmt, name: str) -> bool:
    if isinstance(maker, ast.AugAssign):
        return True
    if not isinstance(maker, (ast.Assign, ast.AnnAssign)) or maker.value is None:
        return False
    targets = maker.targets if isinstance(maker, ast.Assign) else [maker.target]
    single = len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == name
    return single and _is_new(maker.value)


def _is_new(value: ast.expr) -> bool:
    if isinstance(value, _ONLY_VALUES):
        return not isinstance(value, ast.BoolOp)
    return isinstance(value, ast.Call) and is_plain_op(value)


def is_plain_op(call: ast.Call) -> bool:
    """A torch op whose result shares memory with nothing it was given."""
    name = syntax.called(call)
    if name in MAY_SHARE or any(k.arg in ("out", "inplace") for k in call.keywords):
        return False
    func = call.func
    if isinstance(func, ast.Name) or (isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name)):
        # `self.exp(x)` is somebody's own method.
        owner = func.value.id if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) else ""
        if owner in ("self", "cls") or not owner:
            return False
    row = lookup(name)
    return row is not None and not (row.alias or row.may_alias or row.view or row.writes)


def _shared_before(source: Source, scope: ast.AST, name: str, write: ast.stmt) -> bool:
    """May something else hold the memory when it is written? Asked of every read that can come before the write."""
    loop = source.loop_of(write)
    limit = source.end(loop) if loop is not None else source.start(write)
    inside = (source.start(write), source.end(write))
    for node in ast.walk(scope):
        if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
            continue
        at = source.start(node)
        if at >= limit or inside[0] <= at < inside[1]:
            continue
        if not only_values_taken(source, node):
            return True
    return False


def only_values_taken(source: Source, read: ast.expr) -> bool:
    parent = source.parents.get(read)
    if isinstance(parent, _ONLY_VALUES) and not isinstance(parent, ast.BoolOp):
        return True
    if isinstance(parent, ast.Attribute):
        call = source.parents.get(parent)
        return isinstance(call, ast.Call) and call.func is parent and is_plain_op(call)
    return isinstance(parent, ast.Call) and read in parent.args and is_plain_op(parent)


def _inner_layer(candidate: Candidate) -> bool:
    """The layer works on the fresh result of the one before it in a Sequential: nobody else can see that memory."""
    assert candidate.span is not None
    source = candidate.source
    call = source.expression(candidate.span)
    parent = source.parents.get(call) if call is not None else None
    if not isinstance(call, ast.Call) or not isinstance(parent, ast.Call) or syntax.called(parent) != "Sequential":
        return False
    place = next((i for i, argument in enumerate(parent.args) if argument is call), 0)
    return works_on_new_memory(parent.args, place)


def _copied_operand(candidate: Candidate) -> bool:
    """An op that only reads what it is given computes the same from a copy of it."""
    source, [edit, *others] = candidate.source, candidate.edits
    if others:
        return False
    nodes = [n for n in ast.walk(source.tree) if isinstance(n, ast.expr) and source.start(n) == edit.start]
    operand = next((n for n in nodes if source.end(n) == edit.end), None)
    reader = source.parents.get(operand) if operand is not None else None
    if isinstance(reader, ast.Attribute):
        reader = source.parents.get(reader)
    return isinstance(reader, ast.expr) and _is_new(reader)


def _copied_result(candidate: Candidate) -> bool:
    """Nobody but the next reader can hold a new result, so a copy of it may go on in its place."""
    assert candidate.span is not None
    made = candidate.source.expression(candidate.span)
    return made is not None and _is_new(made)


_JUDGES = {
    "clone_saved": _copied_operand,
    "clone_saved_result": _copied_result,
    "out_of_place": _unseen_write,
    "fresh_result": _unseen_write,
    "inplace_false": _inner_layer,
    "kept_copy": _copy_of_a_snapshot,
}
