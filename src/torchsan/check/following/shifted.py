"""Statements that move elements along inside of one tensor: `x[1:] = x[:-1]` reads what it has just written."""

from __future__ import annotations

import ast

from torchsan.check.facts import Fact
from torchsan.check.following.blocks import simple_statements
from torchsan.check.following.second_names import are_tensors
from torchsan.check.reading.program import Program
from torchsan.model import events


def shifted(program: Program) -> list[Fact]:
    found: list[Fact] = []
    scopes = [n for n in ast.walk(program.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    for scope in (program.tree, *scopes):
        for node in (s for statement in scope.body for s in _simple(statement)):
            name = _moved(node)
            if name and are_tensors((name,), scope, program):
                write = events.Write("__setitem__", "op", events.Line(program.place(node)))
                event = events.OperandOverwritten(events.Memory(name), write, "shifted")
                found.append(Fact(event, program.place(node)))
    return found


def _simple(statement: ast.stmt) -> list[ast.stmt]:
    apart = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return [] if apart else simple_statements(statement)


def _moved(node: ast.AST) -> str:
    """The name whose elements a statement moves towards the end, in one dimension."""
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    value = getattr(node, "value", None)
    if not isinstance(target, ast.Subscript) or not isinstance(value, ast.Subscript):
        return ""
    if not isinstance(target.value, ast.Name) or ast.unparse(target.value) != ast.unparse(value.value):
        return ""
    to, of = _parts(target.slice), _parts(value.slice)
    apart = [(a, b) for a, b in zip(to, of, strict=False) if ast.dump(a) != ast.dump(b)]
    return target.value.id if len(to) == len(of) and len(apart) == 1 and _right(*apart[0]) else ""


def _parts(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


def _right(to: ast.expr, of: ast.expr) -> bool:
    """Whether `1:` takes what `:-1` holds: as many elements, further on."""
    if not isinstance(to, ast.Slice) or not isinstance(of, ast.Slice) or to.upper or to.step or of.step:
        return False
    by = to.lower.value if isinstance(to.lower, ast.Constant) else None
    first = of.lower is None or (isinstance(of.lower, ast.Constant) and of.lower.value == 0)
    last = of.upper.operand if isinstance(of.upper, ast.UnaryOp) and isinstance(of.upper.op, ast.USub) else None
    return first and isinstance(by, int) and by > 0 and isinstance(last, ast.Constant) and last.value == by
