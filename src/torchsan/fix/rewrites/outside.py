"""Values that are computed or drawn outside torch, by torch instead."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import branches, syntax
from torchsan.fix.rewrites.conditions import AsTensors, condition
from torchsan.fix.source import Edit

Found = Iterator[tuple[str, Iterable[Edit]]]
# NumPy's names that torch spells otherwise.
RENAMED = {
    "absolute": "abs",
    "power": "pow",
    "concatenate": "cat",
    "clip": "clamp",
    "asarray": "as_tensor",
    "median": "quantile",
}
FROM_ARRAY = {"from_numpy", "as_tensor", "tensor"}


def plain_number(spot: Spot) -> Found:
    """The value as a tensor, without `.item()`, `float()` or `math`."""
    source, statement, torch = spot.source, spot.source.statement(spot.span), syntax.torch_name(spot.source)
    if statement is None or torch is None:
        return
    for value in _values(statement):
        text = ast.unparse(_Gathered(torch).visit(copy.deepcopy(value)))
        if text != ast.unparse(value):
            yield f"keep it a tensor: {_short(text)}", [Edit(source.start(value), source.end(value), text)]


def _values(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)):
        return [statement.value] if statement.value is not None else []
    return []


class _Gathered(AsTensors):
    """`torch.tensor([a.item(), b.item()])` as `torch.stack([a, b])`, `torch.tensor(a.item())` as `a`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if syntax.called(node) in FROM_ARRAY and node.args:
            before = ast.unparse(node.args[0])
            inner = self.visit(copy.deepcopy(node.args[0]))
            if ast.unparse(inner) != before:
                if isinstance(inner, (ast.List, ast.Tuple)):
                    return self._torch("stack", inner)
                return inner  # type: ignore[no-any-return]
        return super().visit_Call(node)


def by_torch(spot: Spot) -> Found:
    """The functions of torch for those of NumPy, in the function where a tensor becomes an array."""
    source, statement, torch = spot.source, spot.source.statement(spot.span), syntax.torch_name(spot.source)
    function = source.function_of(statement) if statement is not None else None
    if function is None or torch is None:
        return
    numpy = {
        alias.asname or alias.name
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "numpy"
    }
    edits = []
    for one in ast.walk(function):
        if isinstance(one, (ast.Assign, ast.Return, ast.AugAssign)) and one.value is not None:
            text = ast.unparse(_Arrays(torch, numpy).visit(copy.deepcopy(one.value)))
            if text != ast.unparse(one.value):
                edits.append(Edit(source.start(one.value), source.end(one.value), text))
    if edits:
        yield "compute it with torch instead of NumPy", edits


class _Arrays(_Gathered):
    def __init__(self, torch: str, numpy: set[str]) -> None:
        super().__init__(torch)
        self.numpy = numpy

    def visit_Call(self, node: ast.Call) -> ast.AST:
        found = super().visit_Call(node)
        if not isinstance(found, ast.Call) or not isinstance(found.func, ast.Attribute):
            return found
        func = found.func
        if func.attr in ("numpy", "cpu", "detach") and not found.args:
            return func.value
        if isinstance(func.value, ast.Name) and func.value.id in self.numpy:
            for keyword in found.keywords:
                keyword.arg = {"axis": "dim", "keepdims": "keepdim"}.get(keyword.arg or "", keyword.arg)
            name = RENAMED.get(func.attr, func.attr)
            if func.attr == "median":
                # NumPy takes the mean of the two in the middle, torch.median the lower one.
                found.args.insert(1, ast.Constant(0.5))
            if func.attr in ("std", "var"):
                found.keywords.append(ast.keyword("correction", ast.Constant(0)))
            func = ast.Attribute(ast.Name(self.torch, ast.Load()), name, ast.Load())
            return ast.Call(func, found.args, found.keywords)
        return found


def drawn_by_torch(spot: Spot) -> Found:
    """Random numbers of torch, which captures draw anew at every call; a choice by one is made by torch.where."""
    source, statement, torch = spot.source, spot.source.statement(spot.span), syntax.torch_name(spot.source)
    if statement is None or torch is None:
        return
    drawn = _Drawn(torch)
    if isinstance(statement, ast.If) and source.owns_its_lines(statement):
        tested = copy.deepcopy(statement)
        tested.test = drawn.visit(tested.test)
        edits = branches.statement_edits(source, statement, torch, test=condition(tested.test, torch))
        if drawn.texts and edits:
            yield f"draw with torch: {drawn.texts[0]}, and choose with torch.where", edits
        return
    edits = []
    for value in _values(statement):
        text = ast.unparse(drawn.visit(copy.deepcopy(value)))
        edits.append(Edit(source.start(value), source.end(value), text))
    if drawn.texts:
        yield f"draw with torch: {drawn.texts[0]}", edits


class _Drawn(ast.NodeTransformer):
    def __init__(self, torch: str) -> None:
        self.torch = torch
        self.texts: list[str] = []

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        text = _draw(node, self.torch)
        if not text:
            return node
        self.texts.append(text)
        return ast.parse(text, mode="eval").body

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        before = len(self.texts)
        test = self.visit(copy.deepcopy(node.test))
        if len(self.texts) == before:
            return self.generic_visit(node)
        text = branches.chosen(self.torch, condition(test, self.torch), self.visit(node.body), self.visit(node.orelse))
        return ast.parse(text, mode="eval").body


def _draw(call: ast.Call, torch: str) -> str:
    name, arguments = ast.unparse(call.func), [ast.unparse(a) for a in call.args]
    if name == "random.random" or (name.endswith("random.rand") and not arguments):
        return f"{torch}.rand(())"
    if name.endswith("random.uniform") and len(arguments) == 2:
        low, high = arguments
        return f"({low} + ({high} - {low}) * {torch}.rand(()))"
    if name == "random.gauss" and len(arguments) == 2:
        return f"({arguments[0]} + {arguments[1]} * {torch}.randn(()))"
    if name.endswith("random.randn") and not arguments:
        return f"{torch}.randn(())"
    if name == "random.randint" and len(arguments) == 2:
        return f"{torch}.randint({arguments[0]}, {arguments[1]} + 1, ())"
    if name in ("random.randrange", "np.random.randint", "numpy.random.randint") and arguments:
        bounds = arguments if len(arguments) == 2 else ["0", arguments[0]]
        return f"{torch}.randint({bounds[0]}, {bounds[1]}, ())"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= 40 else "…"


def in_eval_mode(spot: Spot) -> Found:
    """A model that draws in training only is captured in eval mode; where it is made for that, not in a class."""
    source, statement = spot.source, spot.source.statement(spot.span)
    owner = next((n for n in source.above(statement) if isinstance(n, ast.ClassDef)), None) if statement else None
    if owner is None:
        return
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != owner.name:
            continue
        if not any(isinstance(n, ast.ClassDef) for n in source.above(node)):
            yield "capture it in eval mode", [Edit(source.end(node), source.end(node), ".eval()")]


def capture_copy(spot: Spot) -> Found:
    """Capture a copy of the module; the one at hand stays as it is."""
    source = spot.source
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if ast.unparse(node.func) in ("torch.jit.trace", "torch.export.export", "torch.onnx.export"):
            given = node.args[0]
            text = f"copy.deepcopy({source.segment(given)})"
            edit = Edit(source.start(given), source.end(given), text)
            yield f"capture a copy: {text}", [*syntax.with_import(source, "copy"), edit]
