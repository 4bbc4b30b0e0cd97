"""Where the user's code writes memory that torch has handed out: NumPy tells nobody, so the source must."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchsan.model import Place
from torchsan.observe import expressions as syntax

TAKEN_IN = ("from_numpy", "from_dlpack", "frombuffer", "as_tensor")
# Methods of an array, and functions of NumPy, that write it.
METHODS = ("fill", "sort", "put", "partition", "itemset", "resize", "setfield")
# What the standard library writes into a buffer that it is given.
INTO = ("pack_into", "readinto", "readinto1", "recv_into", "recvfrom_into", "recvmsg_into")
FUNCTIONS = ("copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal", "shuffle", "at")


def lines_that_write(exposed: Place, how: str) -> list[Place]:
    """The statements that write through the name which an exposed memory has outside torch."""
    file = syntax.file_of(exposed.path)
    node = file.at(exposed) if file else None
    if file is None or node is None:
        return []
    found: list[Place] = []
    for name in _names(file, node, how):
        scope = file.tree if "." in name else file.function(node)
        for statement in _writes(file, scope, name):
            # What an attribute holds is there at the next call, too: a line above comes by again.
            if "." in name or statement.lineno > exposed.line or _in_one_loop(file, statement, node):
                found.append(file.place(statement, exposed))
    return list(dict.fromkeys(found))


def lines_that_write_by(file: syntax.File, scope: ast.AST, name: str, like: Place) -> list[Place]:
    """The statements of this part of the file that write the array which goes by this name there."""
    return [file.place(statement, like) for statement in _writes(file, scope, name)]


def _names(file: syntax.File, node: ast.AST, how: str) -> list[str]:
    if how in TAKEN_IN:
        given = node.args[0] if isinstance(node, ast.Call) and node.args else None
        return [syntax.text_of(given)] if isinstance(given, (ast.Name, ast.Attribute)) else []
    return syntax.names_given(node, file)


def _writes(file: syntax.File, scope: ast.AST, name: str, *, follow: bool = True) -> Iterator[ast.stmt]:
    for node in ast.walk(scope):
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            if any(_root(target) == name for target in _written_targets(node)):
                yield node
        elif isinstance(node, ast.Call):
            statement = file.statement(node)
            if statement is not None and _call_writes(node, name):
                yield statement
            elif follow:
                yield from _in_helper(file, node, name)


def _written_targets(statement: ast.Assign | ast.AugAssign) -> list[ast.expr]:
    """What is written in place: a plain name is only bound by `=`, but written by `+=`."""
    if isinstance(statement, ast.AugAssign):
        return [statement.target]
    return [target for target in statement.targets if isinstance(target, ast.Subscript)]


def _call_writes(call: ast.Call, name: str) -> bool:
    if any(keyword.arg == "out" and _root(keyword.value) == name for keyword in call.keywords):
        return True
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in METHODS and _root(call.func.value) == name:
        return True
    if call.func.attr in INTO:
        return any(_root(argument) == name for argument in call.args[:2])
    return call.func.attr in FUNCTIONS and bool(call.args) and _root(call.args[0]) == name


def _in_helper(file: syntax.File, call: ast.Call, name: str) -> Iterator[ast.stmt]:
    """The writes of a function of the same file that is given the array."""
    place = next((i for i, argument in enumerate(call.args) if syntax.text_of(argument) == name), None)
    if place is None or not isinstance(call.func, ast.Name):
        return
    for function in file.tree.body:
        if isinstance(function, ast.FunctionDef) and function.name == call.func.id:
            arguments = [*function.args.posonlyargs, *function.args.args]
            if place < len(arguments):
                yield from _writes(file, function, arguments[place].arg, follow=False)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return syntax.text_of(node)


def _in_one_loop(file: syntax.File, statement: ast.stmt, node: ast.AST) -> bool:
    loops = {n for n in file.up(statement) if isinstance(n, (ast.For, ast.While))}
    helper = file.function(statement) is not file.function(node)
    return helper or any(around in loops for around in file.up(node))
