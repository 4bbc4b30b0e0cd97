"""The saving side: let autograd keep a copy, where that is smaller or the write cannot be changed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax
from torchsan.fix.rewrites.writes import written_in
from torchsan.fix.source import Edit, Source
from torchsan.fix.trial import HELD

Found = Iterator[tuple[str, Iterable[Edit]]]
LIMIT = 4


def clone_saved(spot: Spot) -> Found:
    """A copy of the operand that the saving op keeps, best where the name is bound."""
    source, expression = spot.source, spot.source.expression(spot.span)
    if expression is None or "needs its result" in spot.span.label:
        return
    kin = _kin(spot, source.scope_of(expression))
    found = sorted(_operands(expression), key=lambda node: _distance(node, kin))
    for operand in found[:LIMIT]:
        definition = _definition(source, operand)
        if definition is not None:
            shown = source.segment(operand)
            yield (
                f"keep a copy: {shown} = {source.segment(definition)}.clone()",
                [syntax.cloned(source, definition)],
            )
        yield f"keep a copy: {source.segment(operand)}.clone()", [syntax.cloned(source, operand)]
    shared = [operand for operand in found if _distance(operand, kin) < len(kin)]
    if len(shared) > 1:
        names = " and ".join(dict.fromkeys(source.segment(operand) for operand in shared))
        yield f"keep copies of {names}", [syntax.cloned(source, operand) for operand in shared]


def clone_saved_result(spot: Spot) -> Found:
    """A copy of the saved result goes on; the result itself is never written."""
    source, expression = spot.source, spot.source.expression(spot.span)
    needs_other = "needs its" in spot.span.label and "result" not in spot.span.label
    if isinstance(expression, (ast.Call, ast.BinOp)) and not needs_other:
        yield "go on with a copy: ….clone()", [syntax.cloned(source, expression)]


def _operands(node: ast.expr) -> list[ast.expr]:
    """The tensors that an op or a layer is given, as far as they are names, attributes or parts of such."""
    if isinstance(node, ast.BinOp):
        return [*_operands(node.left), *_operands(node.right)]
    if isinstance(node, ast.UnaryOp):
        return _operands(node.operand)
    if isinstance(node, ast.Call):
        method = isinstance(node.func, ast.Attribute) and not syntax.is_module_function(node)
        own = [node.func.value] if method and isinstance(node.func, ast.Attribute) else []
        # `self.layer(x)`: what is before the dot is a module, not a tensor.
        tensor = isinstance(node.func, ast.Attribute) and node.func.attr in syntax.VIEWS
        module = own and syntax.root_name(own[0]) == "self" and not isinstance(own[0], ast.Subscript) and not tensor
        own = [] if module else own
        return [n for child in [*own, *node.args] for n in _operands(child)]
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return [node]
    return []


def _kin(spot: Spot, scope: ast.AST) -> list[str]:
    """Names of the written memory: the variable written, then those that were bound to parts of it."""
    found: list[str] = []
    for other in spot.spots("mutated"):
        statement = other.source.statement(other.span)
        written = written_in(other, statement) if statement is not None else None
        variable = syntax.variable_of(written) if written is not None else None
        if variable is not None:
            found.append(ast.unparse(variable))
        found += [alias.name for alias in other.aliases if alias.name not in (*found, HELD)]
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and any(name in ast.unparse(node.value) for name in found):
            found.extend(sorted(syntax.stores(node)))
    return found


def _distance(node: ast.expr, kin: list[str]) -> int:
    variable = syntax.variable_of(node)
    name = ast.unparse(variable) if variable is not None else ""
    return kin.index(name) if name in kin else len(kin)


def _definition(source: Source, operand: ast.expr) -> ast.expr | None:
    """The expression that a local name stands for, if it is bound once, to a part of something else."""
    if not isinstance(operand, ast.Name):
        return None
    bound = []
    for node in ast.walk(source.scope_of(operand)):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                bound.extend(_bindings(target, node.value, operand.id))
    if len(bound) != 1 or not isinstance(bound[0], (ast.Name, ast.Attribute, ast.Subscript)):
        return None
    return bound[0]


def _bindings(target: ast.expr, value: ast.expr, name: str) -> list[ast.expr]:
    if isinstance(target, ast.Name) and target.id == name:
        return [value]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = zip(target.elts, value.elts, strict=True)
        return [found for t, v in pairs for found in _bindings(t, v, name)]
    return [value] if name in syntax.stores(target) else []
