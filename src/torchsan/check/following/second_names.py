"""Tensors that got a second name, as if that were a copy: a write by one name, then a read by the other."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchsan.check.facts import Fact
from torchsan.check.following.blocks import (
    Body,
    blocks_of,
    calls_in,
    comes_after,
    names_bound,
    names_read,
    root_of,
    simple_statements,
)
from torchsan.check.following.dropped import is_tensor
from torchsan.check.modelling.names import SHAPE_ONLY, only_tensors_have
from torchsan.check.reading.program import Program
from torchsan.check.reading.writes import writing_methods
from torchsan.effects import lookup
from torchsan.model import events

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_SIGNS = {ast.Add: "__iadd__", ast.Sub: "__isub__", ast.Mult: "__imul__", ast.Div: "__itruediv__"}


def second_names(program: Program) -> list[Fact]:
    """`volume = reference; reference.pow_(2); use(volume)`: who keeps a second name wanted what was there before."""
    found: list[Fact] = []
    for function in ast.walk(program.tree):
        if isinstance(function, _Function):
            for block in blocks_of(function.body):
                for index, node in enumerate(block):
                    names = _named_again(node)
                    if names is not None:
                        found += _facts(node, names, block[index + 1 :], function, program)
                    elif isinstance(node, ast.If) and node.orelse:
                        found += _of_one_branch(node, block[index + 1 :], function, program)
    return found


def _of_one_branch(node: ast.If, rest: Body, function: _Function, program: Program) -> Iterator[Fact]:
    """`d = grad + m * buf if nesterov else buf`, as two branches: what is written then is the state on one of them.

    Something else may be meant where the state is kept as it is written, so this is only possible.
    """
    for branch, beside in ((node.body, node.orelse), (node.orelse, node.body)):
        for statement in branch:
            names = _named_again(statement)
            if names is None or not _is_kept(names[1], function) or not _binds_other(beside, names):
                continue
            written = next((w for s in _below(rest) if (w := _written(s, names)) and w[0] == names[0]), None)
            if written is not None and written[1] != "__setitem__":
                yield Fact(_event(names, statement, written, None, program), program.place(statement), "possible")


def _is_kept(name: str, function: _Function) -> bool:
    """Whether a name stands for what an object keeps: `buf = state["momentum"]`."""
    given = [n.value for n in ast.walk(function) if isinstance(n, ast.Assign) and _binds(n, name)]
    return bool(given) and all(
        isinstance(v, ast.Subscript) and isinstance(v.slice, ast.Constant) and isinstance(v.slice.value, str)
        for v in given
    )


def _binds_other(body: Body, names: tuple[str, str]) -> bool:
    """Whether the other branch makes something new of the name."""
    made = [n.value for n in _below(body) if isinstance(n, ast.Assign) and _binds(n, names[0])]
    return bool(made) and all(isinstance(value, ast.Call | ast.BinOp) for value in made)


def _binds(node: ast.Assign, name: str) -> bool:
    return any(isinstance(t, ast.Name) and t.id == name for t in node.targets)


def _below(body: Body) -> list[ast.stmt]:
    return [s for node in body for s in simple_statements(node)]


def _named_again(node: ast.stmt) -> tuple[str, str] | None:
    """The new name and the old one of `new = old`."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.Name):
        return None
    target = node.targets[0]
    return (target.id, node.value.id) if isinstance(target, ast.Name) and target.id != node.value.id else None


def _facts(node: ast.stmt, names: tuple[str, str], rest: Body, function: _Function, program: Program) -> Iterator[Fact]:
    """What follows in the block: nothing else may have led to the write by another way."""
    sure = True
    for statement, nested in [(s, s is not below) for below in rest for s in simple_statements(below)]:
        written = _written(statement, names)
        if written is not None and written[0] in names:
            name = written[0]
            other = names[1] if name == names[0] else names[0]
            read = _read(other, name, statement, function)
            if read is None or _compared(function, names) or not are_tensors(names, function, program):
                return
            event = _event(names, node, written, read, program)
            yield Fact(event, program.place(node), "certain" if sure else "possible")
            return
        if not isinstance(statement, ast.AugAssign) and not names_bound(statement).isdisjoint(names):
            if not nested:
                return
            # On some paths the two have parted before the write.
            sure = False


def _event(
    names: tuple[str, str], node: ast.stmt, written: tuple[str, str, ast.AST], read: ast.AST | None, program: Program
) -> events.AliasedSnapshot:
    return events.AliasedSnapshot(
        events.Memory(names[0]),
        events.Line(program.place(node)),
        events.Write(written[1], "op", events.Line(program.place(written[2]))),
        None if read is None else events.Line(program.place(read)),
        "alias",
        names[1],
    )


def _written(statement: ast.stmt, names: tuple[str, str]) -> tuple[str, str, ast.AST] | None:
    """The name of a tensor whose elements a statement changes, the op and the place."""
    if isinstance(statement, ast.AugAssign):
        target = statement.target
        if isinstance(target, ast.Name):
            return target.id, _SIGNS.get(type(statement.op), "__iadd__"), statement
        item = _item(target)
        return (item, "__setitem__", statement) if item else None
    if isinstance(statement, ast.Assign):
        items = [item for target in statement.targets if (item := _item(target))]
        if items:
            return items[0], "__setitem__", statement
    return _called_on(statement, names)


def _called_on(statement: ast.stmt, names: tuple[str, str]) -> tuple[str, str, ast.AST] | None:
    """An in-place method that a statement calls on one of the names."""
    for call in calls_in(statement):
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            name, owner = call.func.attr, call.func.value.id
            if owner in names and name in writing_methods() and name not in SHAPE_ONLY:
                return owner, name, call
    return None


def _item(node: ast.expr) -> str:
    """The name of which a target is some elements, chosen as only arrays let one choose them."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return ""
    many = (ast.Slice, ast.Compare, ast.Invert)
    chosen = (isinstance(n, many) or (isinstance(n, ast.Constant) and n.value is ...) for n in ast.walk(node.slice))
    return node.value.id if any(chosen) else ""


def _read(other: str, name: str, statement: ast.stmt, function: _Function) -> ast.AST | None:
    """Where the values of the other name are read after the write, which is not where it is only handed back."""
    for node in comes_after(function.body, statement) or []:
        for below in simple_statements(node):
            if other in names_read(below):
                if isinstance(below, ast.Return) and isinstance(below.value, ast.Name):
                    return None
                put_back = (
                    isinstance(below, ast.Expr) and isinstance(below.value, ast.Call) and name in names_read(below)
                )
                return None if put_back else below
            if not isinstance(below, ast.AugAssign) and other in names_bound(below):
                return None
    return None


def _compared(function: _Function, names: tuple[str, str]) -> bool:
    """Whether the function asks if the two are one: it knows that they may be."""
    tests = [n for n in ast.walk(function) if isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.Is | ast.IsNot)]
    return any(set(names) <= {n.id for n in ast.walk(test) if isinstance(n, ast.Name)} for test in tests)


def are_tensors(names: tuple[str, ...], function: ast.AST, program: Program) -> bool:
    """Whether the function shows that what has two names is a tensor, and neither a number nor a list."""
    return any(
        is_tensor(ast.Name(name), function, program) or any(_shows(n, name, program) for n in ast.walk(function))
        for name in names
    )


def _shows(node: ast.AST, name: str, program: Program) -> bool:
    """`name = x.new_zeros(n)`, `torch.bmm(name, y)`."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        made: ast.expr = node.value.func
        bound = any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
        ours = node.value.func.attr in only_tensors_have() and root_of(made) not in program.imports
        while isinstance(made, ast.Attribute) and isinstance(made.value, ast.Call):
            # `torch.arange(12).reshape(3, 4)`
            made = made.value.func
        return bound and (ours or program.dotted(made).startswith("torch."))
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Name) and node.args[0].id == name:
        dotted = program.dotted(node.func)
        return dotted.startswith("torch.") and (row := lookup(dotted)) is not None and row.params[:1] == ("input",)
    return False
