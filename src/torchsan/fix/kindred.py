"""Statements that may write a tensor in place, and calls that may be made for what they write: from syntax alone."""

from __future__ import annotations

import ast

from torchsan.fix.rewrites import syntax
from torchsan.fix.source import Function, Source

NUMBERS = {"item", "len", "int", "float", "round", "perf_counter", "time", "count", "monotonic", "tolist", "numel"}
NO_GRAD = {"no_grad", "inference_mode"}


def written_by(statement: ast.stmt) -> ast.expr | None:
    """What the statement writes in place, if it is a tensor."""
    if isinstance(statement, ast.AugAssign):
        return statement.target
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        return statement.targets[0]
    for node in ast.walk(statement) if isinstance(statement, (ast.Expr, ast.Assign, ast.Return)) else ():
        if isinstance(node, ast.Call) and syntax.is_inplace_call(node):
            out = syntax.out_of(node)
            if out is not None:
                return out
            if syntax.is_module_function(node):
                return node.args[0] if node.args else None
            return node.func.value if isinstance(node.func, ast.Attribute) else None
    return None


def written_through(statement: ast.stmt) -> set[str]:
    written = written_by(statement)
    bound = syntax.stores(statement)
    return bound | ({syntax.root_name(written)} if written is not None else set())


def may_write(source: Source, statement: ast.stmt) -> bool:
    """May a tensor that came from elsewhere be written here, with autograd looking on?"""
    written = written_by(statement)
    if written is None or _under_no_grad(source, statement):
        return False
    if isinstance(statement, ast.AugAssign) and (_is_number(statement.value) and _counts(source, statement)):
        return False
    if isinstance(statement, ast.AugAssign) and _named_number(statement.value):
        return False
    if isinstance(written, ast.Subscript) and not isinstance(statement, ast.Expr):
        return _is_of_tensor(written)
    return bool(syntax.root_name(written)) and syntax.root_name(written) not in ("nn", "torch", "init", "init_")


def _is_of_tensor(written: ast.Subscript) -> bool:
    """By its index: a slice, a mask, a number; a name may be the key of a dictionary."""
    index = written.slice
    if isinstance(index, ast.Constant):
        return not isinstance(index.value, str)
    return isinstance(index, (ast.Slice, ast.Tuple, ast.Compare, ast.UnaryOp))


def _counts(source: Source, statement: ast.AugAssign) -> bool:
    """The name begins as a number here, or nothing says that it is a tensor: `seen += 1`."""
    scope = source.scope_of(statement)
    target = ast.unparse(statement.target)
    for node in ast.walk(source.tree if isinstance(statement.target, ast.Attribute) else scope):
        if isinstance(node, ast.Assign) and any(ast.unparse(t) == target for t in node.targets):
            return _is_number(node.value) or isinstance(node.value, (ast.Constant, ast.List, ast.Dict))
    return False


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, (ast.Constant, ast.List, ast.JoinedStr)) or syntax.is_number(node) or _named_number(node)


def _named_number(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _named_number(node.left) or _named_number(node.right)
    return isinstance(node, ast.Call) and syntax.called(node) in NUMBERS


def _under_no_grad(source: Source, statement: ast.stmt) -> bool:
    for node in source.above(statement):
        said: list[ast.expr] = []
        if isinstance(node, ast.With):
            said = [item.context_expr for item in node.items]
        elif isinstance(node, Function):
            said = node.decorator_list
        if any(NO_GRAD & {n.attr for n in ast.walk(one) if isinstance(n, ast.Attribute)} for one in said):
            return True
    return False


def relies_on_write(source: Source, call: ast.Call) -> bool:
    """The result is thrown away, or what was given, or has a part of it, is read again afterwards."""
    statement = source.statement_of(call)
    given = [syntax.variable_of(a) for a in (*call.args, *(k.value for k in call.keywords))]
    named = [a for a in given if a is not None]
    if statement is None:
        return False
    if isinstance(statement, ast.Expr) and statement.value is call:
        return bool(given)
    targets = [ast.unparse(t) for t in statement.targets] if isinstance(statement, ast.Assign) else []
    kept = [a for a in named if ast.unparse(a) not in targets]
    if any(isinstance(a, ast.Name) and _is_member(source, call, a.id) for a in kept):
        return True
    if isinstance(statement, ast.Return):
        # Names end with the function, what an object has does not; and the same may be returned beside it.
        here = [n for n in ast.walk(statement) if isinstance(n, (ast.Name, ast.Attribute)) and n not in named]
        again = {ast.unparse(n) for n in here}
        return any(isinstance(a, ast.Attribute) or ast.unparse(a) in again for a in kept)
    return any(syntax.is_read_again(source, statement, a) for a in kept)


def _is_member(source: Source, call: ast.Call, name: str) -> bool:
    """A loop takes it from what is still there when the loop has ended."""
    for node in source.above(call):
        if isinstance(node, Function):
            return False
        targets = [node.target] if isinstance(node, ast.For) else []
        targets += [one.target for one in getattr(node, "generators", ())]
        if any(name in syntax.stores(target) for target in targets):
            return True
    return False


def bound(statement: ast.stmt) -> set[str]:
    """Names and attributes that a statement gives a value or writes."""
    found = {ast.unparse(n) for n in ast.walk(statement) if isinstance(getattr(n, "ctx", None), ast.Store)}
    written = written_by(statement)
    return found | ({ast.unparse(written)} if written is not None else set())


def carries(source: Source, loop: ast.For | ast.While, name: str) -> bool:
    """Is the first thing that a turn of the loop does with this name to read it?"""
    inner = [n for part in loop.body for n in ast.walk(part)]
    if isinstance(loop, ast.For):
        inner += list(ast.walk(loop.target))
    kinds = (ast.Name, ast.Attribute, ast.Subscript)
    uses = [n for n in inner if isinstance(n, kinds) and ast.unparse(n) == name]
    # `x = f(x)` reads before it binds.
    order = sorted(uses, key=lambda n: (source.start(source.statement_of(n) or n), isinstance(n.ctx, ast.Store)))
    return bool(order) and (isinstance(order[0].ctx, ast.Load) or _is_augmented(source, order[0]))


def _is_augmented(source: Source, node: ast.AST) -> bool:
    parent = source.parents.get(node)
    return isinstance(parent, ast.AugAssign) and parent.target is node
