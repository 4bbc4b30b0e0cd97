"""What the source says at a place: the expression, its names, where a name was bound, if it is read again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType

from torchsan.model import Place
from torchsan.model.source import source_lines

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
_CHAINS = ("detach", "numpy", "cpu", "view", "reshape", "t", "squeeze", "unsqueeze")
# Asked for, not called: `x.view` without a call is an attribute of somebody's own.
_PROPERTIES = ("data", "T", "mT", "H", "mH", "real", "imag")


class File:
    """A parsed source file, with parents and a look-up by position."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.by_range: dict[tuple[int, int, int, int], list[ast.AST]] = {}
        self.lines = text.splitlines()
        self._within: dict[ast.AST, list[ast.AST]] = {}
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
            if isinstance(node, (ast.expr, ast.stmt)):
                self.by_range.setdefault(self._range(node), []).append(node)

    def _range(self, node: ast.expr | ast.stmt) -> tuple[int, int, int, int]:
        end_line = node.end_lineno or node.lineno
        return (
            node.lineno,
            self._column(node.lineno, node.col_offset),
            end_line,
            self._column(end_line, node.end_col_offset or node.col_offset),
        )

    def _column(self, line: int, offset: int) -> int:
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return 1 + (offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore")))

    def at(self, place: Place) -> ast.AST | None:
        """The node that covers exactly this place; for equal ones, the innermost."""
        key = (place.line, place.column, place.end_line, place.end_column)
        nodes = self.by_range.get(key)
        return nodes[-1] if nodes else None

    def within(self, node: ast.AST) -> list[ast.AST]:
        """The node and everything in it, as `ast.walk` has it, walked once."""
        found = self._within.get(node)
        if found is None:
            found = self._within[node] = list(ast.walk(node))
        return found

    def up(self, node: ast.AST) -> Iterator[ast.AST]:
        """The node and everything around it."""
        at: ast.AST | None = node
        while at is not None:
            yield at
            at = self.parents.get(at)

    def statement(self, node: ast.AST) -> ast.stmt | None:
        return next((n for n in self.up(node) if isinstance(n, ast.stmt)), None)

    def function(self, node: ast.AST) -> Function:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)
        return next((n for n in self.up(node) if isinstance(n, kinds) and n is not node), self.tree)

    def definition(self, code: CodeType) -> ast.FunctionDef | None:
        """The `def` that this code object was compiled from: it begins at its first decorator."""
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.FunctionDef) or node.name != code.co_name:
                continue
            if min([node.lineno, *(d.lineno for d in node.decorator_list)]) == code.co_firstlineno:
                return node
        return None

    def place(self, node: ast.expr | ast.stmt, like: Place) -> Place:
        line, column, end_line, end_column = self._range(node)
        return Place(like.path, line, column, end_line, end_column, like.function)


@lru_cache(maxsize=256)
def _parse(path: str, text: str) -> File | None:
    try:
        return File(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def file_of(path: str) -> File | None:
    text = "".join(source_lines(path))
    return _parse(path, text) if text else None


def text_of(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else text[:57] + "…"


def receiver(node: ast.expr) -> ast.expr:
    """`x` for `x[i]`, `x.mul_(2)`, `x.data[0]`, `x.detach().numpy()`: the name whose memory this is."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and same_memory(node.func.attr):
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr in _PROPERTIES and not _is_object(node.value):
            node = node.value
        else:
            return node


def _is_object(node: ast.expr) -> bool:
    """`self.data` is an attribute that the class has given this name."""
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def same_memory(method: str) -> bool:
    return method in _CHAINS or (method.endswith("_") and not method.endswith("__"))


def written_expression(node: ast.AST, file: File) -> ast.expr | None:
    """The expression whose memory the code at this node writes, as far as the syntax tells."""
    if isinstance(node, ast.AugAssign):
        return receiver(node.target)
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return receiver(node)
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Subscript, ast.Attribute)):
        return receiver(node.targets[0])
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return receiver(node)
    if isinstance(node, ast.Call):
        out = next((k.value for k in node.keywords if k.arg == "out"), None)
        if out is not None:
            return out
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name.endswith("_") and isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
            return receiver(node.func.value)
        inplace = any(k.arg == "inplace" and getattr(k.value, "value", False) is True for k in node.keywords)
        if (name.endswith("_") or inplace) and node.args:
            return receiver(node.args[0])
    return None


def _is_module(node: ast.expr) -> bool:
    """`torch`, `F`, `nn.functional`, `nn.init`: names by which torch's functions are called."""
    root = ast.unparse(node)
    return root in ("torch", "F", "functional", "init") or root.endswith((".functional", ".init", "torch._C._nn"))


def assigned_targets(node: ast.AST, file: File) -> list[str]:
    """The names that receive the value of this expression, when it is the whole right-hand side."""
    statement = file.parents.get(node)
    if isinstance(statement, ast.Tuple) and node in statement.elts:
        # `best, state = loss, model.state_dict()`
        outer, index = file.parents.get(statement), statement.elts.index(node)
        if isinstance(outer, ast.Assign) and outer.value is statement:
            targets = [t for t in outer.targets if isinstance(t, ast.Tuple) and len(t.elts) == len(statement.elts)]
            return [text_of(target.elts[index]) for target in targets]
    if isinstance(statement, ast.Assign) and statement.value is node:
        return [text_of(target) for target in statement.targets]
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and statement.value is node:
        return [text_of(statement.target)]
    return []


def names_given(node: ast.AST, file: File) -> list[str]:
    """The names that receive this value or what is made of it: `best` in `best = {k: v for k, v in <node>}`."""
    for around in file.up(node):
        if isinstance(around, ast.stmt):
            break
        if names := assigned_targets(around, file):
            return names
    return []


def _binds(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))


def _same_position(targets: ast.expr, name: str, values: ast.expr) -> ast.expr:
    """For `for a, b in zip(xs, ys)`, the one of `xs`, `ys` that `name` goes over."""
    if isinstance(values, ast.Call) and isinstance(values.func, ast.Name) and isinstance(targets, ast.Tuple):
        if values.func.id == "zip" and len(targets.elts) == len(values.args):
            for target, value in zip(targets.elts, values.args, strict=True):
                if _binds(target, name):
                    return value
        if values.func.id == "enumerate" and values.args and len(targets.elts) == 2:
            return _same_position(targets.elts[1], name, values.args[0])
    return values


def binding(file: File, function: Function, name: str, before: int) -> tuple[ast.stmt, ast.expr] | None:
    """The last statement at or above line `before` that binds `name` in this function, and its value."""
    found: tuple[ast.stmt, ast.expr] | None = None
    for node in file.within(function):
        line = getattr(node, "lineno", 0)
        if line > before or (found is not None and line < found[0].lineno):
            continue
        if isinstance(node, ast.Assign) and any(binds_target(target, name) for target in node.targets):
            found = (node, node.value)
        if isinstance(node, ast.AnnAssign) and node.value is not None and binds_target(node.target, name):
            found = (node, node.value)
        elif isinstance(node, (ast.For, ast.AsyncFor)) and binds_target(node.target, name):
            found = (node, _same_position(node.target, name, node.iter))
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None and binds_target(item.optional_vars, name):
                    found = (node, item.context_expr)
    return found


def binds_target(target: ast.AST, name: str) -> bool:
    if isinstance(target, ast.Name):
        return target.id == name
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(binds_target(element, name) for element in target.elts)
    return isinstance(target, ast.Starred) and binds_target(target.value, name)


def origin(file: File, at: ast.AST, name: str, steps: int = 3) -> tuple[ast.stmt, ast.expr] | None:
    """Follow a name to the statement that made its value, through loops over other names."""
    function, line = file.function(at), getattr(at, "lineno", 0)
    found = binding(file, function, name, line)
    for _ in range(steps):
        if found is None or not isinstance(found[1], ast.Name) or isinstance(found[0], ast.Assign):
            break
        deeper = binding(file, function, found[1].id, found[0].lineno)
        if deeper is None:
            break
        found = deeper
    return found


def parameters(function: Function) -> list[str]:
    if isinstance(function, ast.Module):
        return []
    a = function.args
    return [arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs)]


def read_again(file: File, call: ast.expr, name: str) -> ast.expr | None:
    """The first place after `call`, on the way on through its function, that reads `name` before it is
    bound anew. None when there is none, or when a loop or a branch makes that unclear."""
    statement = file.statement(call)
    if statement is None:
        return None
    beside = read_beside(file, statement, call, name)
    if beside is not None:
        return beside
    at: ast.AST = statement
    if name in _bound_by(statement):
        return None
    for parent in list(file.up(statement))[1:]:
        for block in _blocks(parent):
            if at in block:
                for later in block[block.index(at) + 1 :]:
                    read = _first_read(later, name)
                    if read is not None:
                        return read
                    if name in _bound_by(later) or isinstance(later, (ast.Return, ast.Raise)):
                        return None
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module, ast.For, ast.While)):
            return None
        at = parent
    return None


_COMPUTING = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare)


def read_beside(file: File, statement: ast.stmt, call: ast.expr, name: str) -> ast.expr | None:
    """A read in the same statement that takes the value after the call: `f(x) + x`, and `x + f(x)` too, since
    an operand is looked up first and used last."""
    inside = set(ast.walk(call))
    for node in ast.walk(statement):
        if not isinstance(node, ast.Name) or node.id != name or node in inside or not isinstance(node.ctx, ast.Load):
            continue
        if file.statement(node) is not statement:
            continue
        if any(isinstance(parent, (ast.Lambda, ast.IfExp, ast.BoolOp)) for parent in _up_to(file, node, statement)):
            continue
        reader = next((parent for parent in _up_to(file, node, statement) if isinstance(parent, _COMPUTING)), None)
        if reader is not None and (call in set(ast.walk(reader)) or _position(node) > _position(call)):
            return node
    return None


def _up_to(file: File, node: ast.AST, statement: ast.stmt) -> Iterator[ast.AST]:
    for parent in file.up(node):
        if parent is statement:
            return
        if parent is not node:
            yield parent


def _position(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list):
            yield block


def _bound_by(statement: ast.stmt) -> set[str]:
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del))
    }


def _first_read(statement: ast.stmt, name: str) -> ast.expr | None:
    reads = [
        node
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
    # `x.shape`, `len(x)`: looking at a tensor's form does not read its values.
    return min(reads, key=lambda n: (n.lineno, n.col_offset), default=None)


def loop_around(place: Place) -> Place | None:
    """The innermost loop of the same function that a place stands in: its whole extent."""
    file = file_of(place.path)
    node = file.at(place) if file else None
    if file is None or node is None:
        return None
    for around in file.up(node):
        if isinstance(around, (ast.For, ast.While, ast.AsyncFor)):
            return file.place(around, place)
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
    return None
