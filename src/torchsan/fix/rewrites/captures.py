"""Models that a capture freezes: written so that sizes, types and loops reach it as torch gives them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax
from torchsan.fix.source import Edit, Source

Found = Iterator[tuple[str, Iterable[Edit]]]
LIKE = {"zeros": "new_zeros", "ones": "new_ones", "empty": "new_empty", "full": "new_full", "tensor": "new_tensor"}


def plain_size(spot: Spot) -> Found:
    """A size without `int()` or `len()`, which make a Python number of it."""
    source, statement = spot.source, spot.source.statement(spot.span)
    edits = _without_int(source, statement) if statement is not None else []
    if edits:
        yield "use the size as torch gives it, without int()", edits
    lengths = [
        Edit(source.start(node), source.end(node), f"{source.segment(node.args[0])}.shape[0]")
        for node in (ast.walk(statement) if statement is not None else ())
        if isinstance(node, ast.Call) and syntax.called(node) == "len" and isinstance(node.args[0], syntax.Place)
    ]
    if lengths:
        yield "use the size as torch gives it, without len()", lengths


def _without_int(source: Source, within: ast.AST) -> list[Edit]:
    edits = []
    for node in ast.walk(within):
        if isinstance(node, ast.Call) and syntax.called(node) == "int" and len(node.args) == 1:
            edits.append(Edit(source.start(node), source.start(node.args[0]), ""))
            edits.append(Edit(source.end(node.args[0]), source.end(node), ""))
    return edits


def tensor_by_sizes(spot: Spot) -> Found:
    """`torch.tensor([h for _ in range(n)])` as `torch.ones(n) * h`, here and in like lines of the function."""
    source, statement = spot.source, spot.source.statement(spot.span)
    if statement is None:
        return
    for scope in (source.scope_of(statement), statement):
        edits = [edit for node in ast.walk(scope) for edit in _repeated(source, node)]
        if edits:
            yield "fill a tensor by its size: torch.ones(n) * h", edits


def _repeated(source: Source, node: ast.AST) -> list[Edit]:
    if not isinstance(node, ast.Call) or syntax.called(node) != "tensor" or len(node.args) != 1:
        return []
    made = node.args[0]
    if not isinstance(made, ast.ListComp) or len(made.generators) != 1 or made.generators[0].ifs:
        return []
    loop = made.generators[0]
    counts = isinstance(loop.iter, ast.Call) and syntax.called(loop.iter) == "range" and len(loop.iter.args) == 1
    if not counts or not isinstance(loop.iter, ast.Call) or syntax.stores(loop.target) & syntax.loads(made.elt):
        return []
    number, value = source.segment(loop.iter.args[0]), source.segment(made.elt)
    named = "".join(f", {source.segment(k)}" for k in node.keywords)
    owner = source.segment(node.func).rpartition(".")[0] or "torch"
    right = value if isinstance(made.elt, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else f"({value})"
    return [Edit(source.start(node), source.end(node), f"{owner}.ones({number}{named}) * {right}")]


def like_input(spot: Spot) -> Found:
    """`torch.zeros(…, dtype=x.dtype)` as `x.new_zeros(…)`: type and device stay the input's, whatever it is."""
    source, statement = spot.source, spot.source.statement(spot.span)
    for node in ast.walk(statement) if statement is not None else ():
        if not isinstance(node, ast.Call) or any(k.arg not in ("dtype", "device") for k in node.keywords):
            continue
        text = ", ".join(source.segment(argument) for argument in node.args)
        for owner in _owners(source, node):
            whole = ""
            if syntax.called(node) in LIKE:
                whole = f"{owner}.{LIKE[syntax.called(node)]}({text})"
            elif syntax.called(node) in ("to", "type", "float", "double", "half") and isinstance(
                node.func, ast.Attribute
            ):
                whole = f"{source.segment(node.func.value)}.to({owner})"
            if whole and syntax.root_name(node) != owner:
                yield whole, [Edit(source.start(node), source.end(node), whole)]


def _owners(source: Source, call: ast.Call) -> list[str]:
    """Tensors whose type a new one may take: the one that is named, else the function's arguments."""
    named = {owner for k in call.keywords if (owner := _followed(k))}
    if named:
        return sorted(named) if len(named) == 1 else []
    function = source.function_of(call)
    return [a.arg for a in function.args.args if a.arg not in ("self", "cls")][:2] if function is not None else []


def _followed(keyword: ast.keyword) -> str:
    """`x` of `dtype=x.dtype`."""
    value = keyword.value
    return ast.unparse(value.value) if isinstance(value, ast.Attribute) and value.attr in ("dtype", "device") else ""


def without_memo(spot: Spot) -> Found:
    """Compute a value in every call instead of keeping it in a Python dict by size."""
    source, statement = spot.source, spot.source.statement(spot.span)
    function = source.function_of(statement) if statement is not None else None
    for node in ast.walk(function) if function is not None else ():
        if not isinstance(node, ast.If) or len(node.body) != 1 or node.orelse or not source.owns_its_lines(node):
            continue
        kept = node.body[0]
        if not isinstance(kept, ast.Assign) or not isinstance(kept.targets[0], ast.Subscript):
            continue
        memo = kept.targets[0]
        test = node.test
        asked = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotIn)
        if not asked or not isinstance(test, ast.Compare) or not syntax.same(test.comparators[0], memo.value):
            continue
        value = syntax.as_receiver(source.segment(kept.value), kept.value)
        first, last = source.line_start(node.lineno), source.line_start((node.end_lineno or 0) + 1)
        edits = [Edit(first, last, "")]
        for read in ast.walk(function) if function is not None else ():
            if isinstance(read, ast.Subscript) and syntax.same(read, memo) and read is not memo:
                edits.append(Edit(source.start(read), source.end(read), value))
        keys = [n for n in ast.walk(function) if isinstance(n, ast.Assign)] if function is not None else []
        for maker in keys:
            if syntax.stores(maker) & syntax.loads(memo.slice):
                edits += _without_int(source, maker)
        yield f"compute {_short(value)} in every call", edits


def _short(text: str) -> str:
    return text if len(text) <= 40 and "\n" not in text else "it"


def filled(spot: Spot) -> Found:
    """`torch.fill(torch.empty_like(a), v)` as `torch.full_like(a, v)`, which the tracer knows."""
    source, statement, torch = spot.source, spot.source.statement(spot.span), syntax.torch_name(spot.source)
    for node in ast.walk(statement) if statement is not None and torch is not None else ():
        if not isinstance(node, ast.Call) or syntax.called(node) not in ("fill", "fill_"):
            continue
        is_function = syntax.is_module_function(node)
        given = [*node.args] if is_function else [node.func.value, *node.args]  # type: ignore[attr-defined]
        if len(given) != 2:
            continue
        like, value = given
        if isinstance(like, ast.Call) and syntax.called(like).endswith("_like") and like.args:
            like = like.args[0]
        text = f"{torch}.full_like({source.segment(like)}, {source.segment(value)})"
        yield text, [Edit(source.start(node), source.end(node), text)]


def into_memory(spot: Spot) -> Found:
    """`self.last.data = value` as `self.last.copy_(value)`, a write that captures keep, or a plain assignment."""
    source, statement = spot.source, spot.source.statement(spot.span)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if isinstance(statement, ast.Assign) and isinstance(target, ast.Attribute) and target.attr == "data":
        name, value = source.segment(target.value), source.segment(statement.value)
        for text in (f"{name}.copy_({value})", f"{name} = {value}"):
            yield text, [Edit(source.start(statement), source.end(statement), text)]
