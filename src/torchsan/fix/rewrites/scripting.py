"""Loops and branches that `torch.jit.trace` would freeze, compiled instead: a function, a method or a module."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax
from torchsan.fix.source import Edit, Function, Source

Found = Iterator[tuple[str, Iterable[Edit]]]
LITERALS = (bool, int, float, str)


def scripted(spot: Spot) -> Found:
    """`@torch.jit.script` for the function that holds the loop or branch; else the module is compiled."""
    if "torch.jit.trace" not in spot.finding.message:
        return
    source, statement = spot.source, spot.source.statement(spot.span)
    function = _function(source, statement) if statement is not None else None
    torch = syntax.torch_name(source)
    if function is None or torch is None:
        return
    if not function.decorator_list:
        if function in source.tree.body:
            yield from _compiled(source, function, torch, static=False)
        elif _needs_no_self(source, function):
            yield from _compiled(source, function, torch, static=True)
    yield from _cut_out(source, statement, function, torch)
    yield from _compiled_module(spot, function, torch)


def _function(source: Source, statement: ast.stmt) -> Function | None:
    inside = [n for n in (statement, *source.above(statement)) if isinstance(n, Function)]
    return inside[-1] if inside else None


def _needs_no_self(source: Source, function: Function) -> bool:
    owner, arguments = source.parents.get(function), function.args.args
    in_class = isinstance(owner, ast.ClassDef) and bool(arguments) and not function.name.startswith("__")
    return in_class and function.name != "forward" and arguments[0].arg not in syntax.names_in(function)


def _compiled(source: Source, function: Function, torch: str, *, static: bool) -> Found:
    at, indent = source.line_start(function.lineno), source.indent(function)
    lines = [f"{indent}@staticmethod"] * static + [f"{indent}@{torch}.jit.script"]
    edits = [Edit(at, at, "".join(line + source.newline for line in lines)), *_annotated(source, function)]
    if static:
        own, rest = function.args.args[0], function.args.args[1:]
        edits.append(Edit(source.start(own), source.start(rest[0]) if rest else source.end(own), ""))
    name = f"compile {function.name} with @{torch}.jit.script"
    unwrapped, parts = _read_outs(source, function), _named_parts(source, function)
    if not unwrapped:
        yield name, edits
    for kind in ("int", "float") if unwrapped else ():
        yield f"{name}, {kind} numbers", [*edits, *_as_numbers(source, unwrapped, kind), *parts]
    if parts and not unwrapped:
        yield f"{name}, results by number", [*edits, *parts]


def _annotated(source: Source, function: Function) -> list[Edit]:
    """TorchScript takes arguments for tensors unless told: those with a plain default are of its type."""
    arguments = function.args
    pairs = zip(arguments.args[len(arguments.args) - len(arguments.defaults) :], arguments.defaults, strict=True)
    edits = []
    for argument, default in pairs:
        if argument.annotation is None and isinstance(default, ast.Constant) and type(default.value) in LITERALS:
            at = source.end(argument)
            edits.append(Edit(at, at, f": {type(default.value).__name__}"))
    return edits


def _read_outs(source: Source, within: ast.AST) -> list[ast.Call]:
    """`x.item()` has no type that TorchScript computes with, unless it is made an int or a float."""
    found = []
    for node in ast.walk(within):
        if isinstance(node, ast.Call) and syntax.called(node) == "item" and not node.args:
            around = source.parents.get(node)
            if not (isinstance(around, ast.Call) and syntax.called(around) in ("int", "float", "bool")):
                found.append(node)
    return found


def _as_numbers(source: Source, calls: list[ast.Call], kind: str) -> list[Edit]:
    starts = [Edit(source.start(c), source.start(c), f"{kind}(") for c in calls]
    return [*starts, *(Edit(source.end(c), source.end(c), ")") for c in calls)]


def _named_parts(source: Source, within: ast.AST) -> list[Edit]:
    """`x.max(1).values` as `x.max(1)[0]`."""
    edits = []
    for node in ast.walk(within):
        if isinstance(node, ast.Attribute) and node.attr in ("values", "indices") and isinstance(node.value, ast.Call):
            number = "[0]" if node.attr == "values" else "[1]"
            edits.append(Edit(source.end(node.value), source.end(node), number))
    return edits


# -- a part of a method -----------------------------------------------------------------------------------------


def _cut_out(source: Source, statement: ast.stmt | None, function: Function, torch: str) -> Found:
    """The loop or branch alone, as a compiled function of the file, when it needs nothing of the module."""
    region = _region(source, statement, function) if statement is not None else []
    if not region or not all(source.owns_its_lines(s) for s in region):
        return
    arguments, results = _flow(source, region, function)
    inner = {n for s in region for n in ast.walk(s)}
    if not results or any(isinstance(n, (ast.Return, ast.Yield, ast.Await, Function, ast.Lambda)) for n in inner):
        return
    top = next((n for n in (function, *source.above(function)) if n in source.tree.body), None)
    if not isinstance(top, ast.stmt) or {"self", "cls"} & syntax.names_in(ast.Module(region, [])):
        return
    name = syntax.free_name(f"{function.name}_loop", syntax.names_in(source.tree))
    kinds = {a: _kind(function, a) for a in arguments}
    signature = ", ".join(f"{a}: {kinds[a]}" if kinds[a] else a for a in arguments)
    decorated = getattr(top, "decorator_list", None)
    at = source.line_start(decorated[0].lineno if decorated else top.lineno)
    first, last = source.line_start(region[0].lineno), source.line_start((region[-1].end_lineno or 0) + 1)
    indent, newline = source.indent(region[0]), source.newline
    unwrapped = [c for s in region for c in _read_outs(source, s)]
    edits_inside = [*_as_numbers(source, unwrapped, "int"), *(e for s in region for e in _named_parts(source, s))]
    body = _text(source, first, last, edits_inside).splitlines()
    body = ["    " + line.removeprefix(indent) if line.strip() else "" for line in body]
    lines = [f"@{torch}.jit.script", f"def {name}({signature}):", *body, f"    return {', '.join(results)}", "", ""]
    call = f"{indent}{', '.join(results)} = {name}({', '.join(arguments)}){newline}"
    yield (
        f"compile the loop with @{torch}.jit.script",
        [Edit(at, at, "".join(line + newline for line in lines)), Edit(first, last, call)],
    )


def _text(source: Source, first: int, last: int, edits: list[Edit]) -> str:
    text = source.text[first:last]
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start - first] + edit.text + text[edit.end - first :]
    return text


def _region(source: Source, statement: ast.stmt, function: Function) -> list[ast.stmt]:
    """The outermost loop or branch of the function around the read-out, from where its lists begin."""
    around = [n for n in (statement, *source.above(statement)) if isinstance(n, (ast.For, ast.While, ast.If))]
    around = [n for n in around if n in function.body]
    block = function.body
    if around:
        at = block.index(around[-1])
    else:
        kept = syntax.stores(statement)
        loops = [s for s in block if isinstance(s, (ast.For, ast.While, ast.If)) and kept & syntax.loads(s)]
        if statement not in block or not loops:
            return []
        at = block.index(loops[0])
    first = block.index(statement) if statement in block and not around else at
    lists = [
        k
        for k, s in enumerate(block[:at])
        if isinstance(s, ast.Assign) and isinstance(s.value, ast.List) and syntax.stores(s) & syntax.loads(block[at])
    ]
    region = block[min([first, *lists]) : at + 1]
    tail = block[at + 1 : at + 2]
    if lists and tail and isinstance(tail[0], ast.Assign) and syntax.loads(tail[0]) & syntax.stores(block[lists[0]]):
        region = [*region, tail[0]]
    return region


def _flow(source: Source, region: list[ast.stmt], function: Function) -> tuple[list[str], list[str]]:
    """Names that a region reads from before it, and names that it binds and later code reads."""
    known = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    begin, end = source.start(region[0]), source.end(region[-1])
    names = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
    known |= {n.id for n in names if isinstance(n.ctx, ast.Store) and source.start(n) < begin}
    inside = [n for n in names if begin <= source.start(n) < end]
    read = {n.id for n in inside if isinstance(n.ctx, ast.Load)} | {
        s.target.id
        for one in region
        for s in ast.walk(one)
        if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name)
    }
    written = {n.id for n in inside if isinstance(n.ctx, ast.Store)}
    changed = {syntax.root_name(n) for s in region for n in _changed(s)}
    later = {n.id for n in names if source.start(n) >= end and isinstance(n.ctx, ast.Load)}
    return sorted(read & known), sorted((written | (changed & known)) & later)


def _changed(statement: ast.stmt) -> Iterator[ast.expr]:
    """Tensors that are written in place inside a statement."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield node.value
        elif isinstance(node, ast.Call) and syntax.is_inplace_call(node) and isinstance(node.func, ast.Attribute):
            yield node.func.value


def _kind(function: Function, name: str) -> str:
    """`int` for a name that holds a size."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and name in syntax.stores(node):
            text = ast.unparse(node.value)
            if isinstance(node.value, (ast.Call, ast.Subscript)) and (".size(" in text or ".shape[" in text):
                return "int" if text.endswith((")", "]")) and text.count("(") <= 1 else ""
            if isinstance(node.value, ast.Call) and syntax.called(node.value) in ("int", "len"):
                return "int"
            if (
                isinstance(node.value, ast.Attribute)
                and node.value.attr == "shape"
                and isinstance(node.targets[0], ast.Tuple)
            ):
                return "int"
    return ""


# -- a whole module ---------------------------------------------------------------------------------------------


def _compiled_module(spot: Spot, function: Function, torch: str) -> Found:
    """`torch.jit.script(Module(…))` where the module is made: a trace keeps compiled modules as they are."""
    owner = spot.source.parents.get(function)
    if not isinstance(owner, ast.ClassDef):
        return
    source = spot.source
    made = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == owner.name
    ]
    edits = [Edit(source.start(n), source.start(n), f"{torch}.jit.script(") for n in made]
    edits += [Edit(source.end(n), source.end(n), ")") for n in made]
    if not edits:
        return
    unwrapped = _read_outs(source, owner)
    if not unwrapped:
        yield f"compile the module: {torch}.jit.script({owner.name}(…))", edits
    for kind in ("int", "float") if unwrapped else ():
        numbers = _as_numbers(source, unwrapped, kind)
        yield f"compile the module: {torch}.jit.script({owner.name}(…)), {kind} numbers", [*edits, *numbers]
