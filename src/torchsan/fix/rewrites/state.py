"""Python state of a module, kept as tensors that captures know."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import branches, syntax
from torchsan.fix.rewrites.conditions import condition
from torchsan.fix.source import Edit, Function, Source

Found = Iterator[tuple[str, Iterable[Edit]]]


def as_buffer(spot: Spot) -> Found:
    """`self.calls = 0` as a registered buffer, which every call of a capture reads and changes, too."""
    source, statement, torch = spot.source, spot.source.statement(spot.span), syntax.torch_name(spot.source)
    function = source.function_of(statement) if statement is not None else None
    owner = source.parents.get(function) if function is not None else None
    if statement is None or function is None or torch is None or not isinstance(owner, ast.ClassDef):
        return
    for name in sorted(_own_attributes(statement)):
        made = _made(owner, name)
        if made is None:
            continue
        value = source.segment(made.value)
        if not _is_tensor(made.value):
            value = f"{torch}.tensor({value})"
        buffer = f'self.register_buffer("{name}", {value}, persistent=False)'
        edits = [Edit(source.start(made), source.end(made), buffer)]
        edits += [edit for s in ast.walk(function) for edit in _rebound(source, s, name)]
        decided = _branches_on(spot, function, name, torch)
        if decided:
            yield f"keep self.{name} in a buffer, and choose with torch.where", [*edits, *decided]
        else:
            yield f"keep self.{name} in a buffer", edits


def _own_attributes(statement: ast.stmt) -> set[str]:
    found = (n for n in ast.walk(statement) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name))
    return {n.attr for n in found if isinstance(n.value, ast.Name) and n.value.id == "self"}


def _made(owner: ast.ClassDef, name: str) -> ast.Assign | None:
    """`self.name = …` in the constructor."""
    maker = next((n for n in owner.body if isinstance(n, Function) and n.name == "__init__"), None)
    for statement in maker.body if maker is not None else ():
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == f"self.{name}":
            value = statement.value
            plain = syntax.is_number(value) or (isinstance(value, ast.Constant) and isinstance(value.value, bool))
            return statement if plain or _is_tensor(value) else None
    return None


def _is_tensor(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and syntax.called(value) in ("zeros", "ones", "tensor", "full", "empty", "rand")


def _rebound(source: Source, statement: ast.AST, name: str) -> list[Edit]:
    """`self.calls = self.calls + 1` as a write to the buffer, which a plain assignment would only replace."""
    if not isinstance(statement, ast.Assign) or ast.unparse(statement.targets[0]) != f"self.{name}":
        return []
    target, value = statement.targets[0], statement.value
    if syntax.is_number(value):
        return [Edit(source.end(target), source.end(value), f".fill_({source.segment(value)})")]
    return [Edit(source.end(target), source.end(value), f".copy_({source.segment(value)})")]


def _branches_on(spot: Spot, function: Function, name: str, torch: str) -> list[Edit]:
    """Branches that test the attribute, chosen by torch.where."""
    source = spot.source
    edits: list[Edit] = []
    for node in ast.walk(function):
        if isinstance(node, ast.IfExp) and f"self.{name}" in ast.unparse(node.test):
            text = branches.chosen(torch, condition(node.test, torch), node.body, node.orelse)
            edits.append(Edit(source.start(node), source.end(node), text))
        elif isinstance(node, ast.If) and f"self.{name}" in ast.unparse(node.test):
            edits += branches.statement_edits(source, node, torch)
    return edits
