"""Expressions that left torch, brought back: conditions and numbers as tensors."""

from __future__ import annotations

import ast
import copy

from torchsan.fix.rewrites import syntax

READ_OUTS = {"item", "tolist"}
NUMBERS = {"bool", "float"}
MATH = {
    "sqrt",
    "exp",
    "log",
    "log2",
    "log10",
    "sin",
    "cos",
    "tan",
    "tanh",
    "floor",
    "ceil",
    "fabs",
    "pow",
    "isnan",
    "isinf",
}
MATH_NAMES = {"fabs": "abs"}


class AsTensors(ast.NodeTransformer):
    """`x.item()`, `float(x)` and `bool(x)` as `x`; `int(x)` as `x.long()`; `and`, `or`, `not` and `math` by torch."""

    def __init__(self, torch: str) -> None:
        self.torch = torch

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name, func = syntax.called(node), node.func
        if isinstance(func, ast.Attribute):
            if name in READ_OUTS and not node.args:
                return func.value
            if isinstance(func.value, ast.Name) and func.value.id == "math" and name in MATH:
                return self._torch(MATH_NAMES.get(name, name), *node.args)
        elif len(node.args) == 1 and not node.keywords:
            if name in NUMBERS:
                return node.args[0]
            if name == "int":
                return ast.Call(ast.Attribute(node.args[0], "long", ast.Load()), [], [])
            if name in ("abs", "round"):
                return self._torch(name, *node.args)
        elif name in ("max", "min") and len(node.args) == 2 and not node.keywords:
            return self._bounded(name, node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        whole = node.values[0]
        for value in node.values[1:]:
            whole = self._torch(name, whole, value)
        return whole

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return self._torch("logical_not", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) < 2:
            return node
        operands = [node.left, *node.comparators]
        pairs = zip(operands, node.ops, operands[1:], strict=False)
        parts: list[ast.expr] = [ast.Compare(a, [op], [b]) for a, op, b in pairs]
        whole = parts[0]
        for part in parts[1:]:
            whole = self._torch("logical_and", whole, part)
        return whole

    def _bounded(self, name: str, node: ast.Call) -> ast.expr:
        """`max(x, 1)` as `x.clamp(min=1)`."""
        bound = next((a for a in node.args if syntax.is_number(a)), None)
        if bound is None:
            return self._torch(f"{name}imum", *node.args)
        other = node.args[1] if bound is node.args[0] else node.args[0]
        keyword = ast.keyword("min" if name == "max" else "max", bound)
        return ast.Call(ast.Attribute(other, "clamp", ast.Load()), [], [keyword])

    def _torch(self, name: str, *args: ast.expr) -> ast.expr:
        return ast.Call(ast.Attribute(ast.Name(self.torch, ast.Load()), name, ast.Load()), list(args), [])


def as_tensors(node: ast.expr, torch: str) -> str:
    """The text of an expression whose values stay tensors."""
    return ast.unparse(AsTensors(torch).visit(copy.deepcopy(node)))


TRUTHS = {
    "any",
    "all",
    "isnan",
    "isinf",
    "isfinite",
    "equal",
    "eq",
    "ne",
    "lt",
    "gt",
    "le",
    "ge",
    "logical_not",
    "allclose",
}


def condition(test: ast.expr, torch: str) -> str:
    """A test as a tensor of truth values, as `torch.where` asks for: `if n % 2` means `n % 2 != 0`."""
    made = AsTensors(torch).visit(copy.deepcopy(test))
    known = isinstance(made, ast.Compare) or (
        isinstance(made, ast.Call) and syntax.called(made).removeprefix("is_") in TRUTHS | {"logical_and", "logical_or"}
    )
    text = ast.unparse(made)
    return (
        text if known else f"{text} != 0" if isinstance(made, (ast.Name, ast.Attribute, ast.Call)) else f"({text}) != 0"
    )
