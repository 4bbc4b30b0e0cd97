"""Calls that capture a module, and the class of the module that is captured."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from torchsan.check.reading.program import ClassInfo, Program
from torchsan.check.reading.project import Project

METHODS = {
    "torch.jit.trace": "jit.trace",
    "torch.jit.trace_module": "jit.trace",
    "torch.export.export": "export",
    "torch.onnx.export": "onnx",
}
# They hand the module on.
_SAME_MODULE = frozenset(
    {"eval", "to", "cuda", "cpu", "float", "half", "double", "bfloat16", "requires_grad_", "train"}
)
_DYNAMIC = frozenset({"dynamic_axes", "dynamic_shapes"})


@dataclass(frozen=True, slots=True)
class Capture:
    """One call that captures an object of a class."""

    call: ast.Call
    method: str
    cls: ClassInfo
    # Whether some sizes are said to vary.
    dynamic: bool
    # Whether the module is surely still in training mode.
    training: bool


def captures_in(program: Program, project: Project | None) -> Iterator[Capture]:
    for body in _bodies(program.tree):
        for call in _calls(body):
            method = METHODS.get(program.dotted(call.func))
            if method is None or not call.args:
                continue
            made = _maker(call.args[0], body, call.lineno)
            cls = class_named(made.func, program, project) if made is not None else None
            if cls is not None:
                dynamic = any(k.arg in _DYNAMIC for k in call.keywords)
                yield Capture(call, method, cls, dynamic, _trains(call, body))


def class_named(node: ast.expr, program: Program, project: Project | None) -> ClassInfo | None:
    """The class of the tree that an expression such as `nets.Encoder` names."""
    dotted = program.dotted(node)
    found = program.definition(dotted) if "." not in dotted else None
    home: Program = program
    if found is None and project is not None and "." in dotted:
        known = project.find(dotted)
        if known is not None:
            home, found = known
    return home.class_info(found) if isinstance(found, ast.ClassDef) else None


def _bodies(tree: ast.Module) -> list[list[ast.stmt]]:
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [tree.body, *(f.body for f in functions)]


def _calls(body: list[ast.stmt]) -> list[ast.Call]:
    """Calls of a body, but for those of functions and classes defined there."""
    return [n for n in _inside(body) if isinstance(n, ast.Call)]


def _inside(body: list[ast.stmt]) -> Iterator[ast.AST]:
    pending: list[ast.AST] = list(reversed(body))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        yield node
        pending.extend(reversed(list(ast.iter_child_nodes(node))))


def _maker(node: ast.expr, body: list[ast.stmt], before: int, depth: int = 0) -> ast.Call | None:
    """The call that made the object which an expression is: `Net()`, of `net` in `net = Net().eval()`."""
    if depth > 4:
        return None
    if isinstance(node, ast.Call):
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in _SAME_MODULE:
            return _maker(called.value, body, before, depth + 1)
        return node
    if not isinstance(node, ast.Name):
        return None
    bound = [
        n
        for n in _inside(body)
        if isinstance(n, ast.Assign) and n.lineno < before and any(_is(t, node.id) for t in n.targets)
    ]
    # Bound on several paths: which one is captured is not known.
    makers = [_maker(n.value, body, n.lineno, depth + 1) for n in bound]
    return makers[-1] if makers and len({ast.dump(m.func) if m else "" for m in makers}) == 1 else None


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _trains(call: ast.Call, body: list[ast.stmt]) -> bool:
    """Whether nothing between the making and the capture can have switched the module to eval."""
    given = call.args[0]
    if isinstance(given, ast.Call):
        return not any(isinstance(n, ast.Attribute) and n.attr in _SAME_MODULE for n in ast.walk(given))
    if not isinstance(given, ast.Name):
        return False
    for node in _inside(body):
        if isinstance(node, ast.Call) and node is not call:
            called = node.func
            if isinstance(called, ast.Attribute) and called.attr in ("eval", "train"):
                return False
            if any(_is(argument, given.id) for argument in (*node.args, *(k.value for k in node.keywords))):
                # Handed to somebody who may have done so.
                return False
    made = [n.value for n in _inside(body) if isinstance(n, ast.Assign) and any(_is(t, given.id) for t in n.targets)]
    return len(made) == 1 and isinstance(made[0], ast.Call)
