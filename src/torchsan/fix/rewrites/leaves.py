"""Leaves, parameters and tensors made without gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax, writes
from torchsan.fix.source import Edit, Function, Source

Found = Iterator[tuple[str, Iterable[Edit]]]
# Blocks of a file that are tried one after another.
LIMIT = 3


def leaf_write(spot: Spot) -> Found:
    """Inside a forward a changed value is meant to be computed with; elsewhere the leaf itself is meant to change."""
    if "while gradients are recorded" not in spot.span.label:
        # Not a leaf: one of several views, whose write is part of the computation.
        yield from writes.out_of_place(spot)
        yield from writes.clone_before_write(spot)
    elif _in_forward(spot):
        yield from writes.out_of_place(spot)
        yield from local_value(spot)
        yield from writes.clone_before_write(spot)
        for caller in spot.spots("cause"):
            yield from local_copy(caller)
        yield from under_no_grad(spot)
        # A change that nothing in the forward reads: it must at least leave the leaf alone.
        yield from writes.out_of_place(spot, unread=True)
    else:
        yield from under_no_grad(spot)
        yield from writes.out_of_place(spot)
        yield from writes.clone_before_write(spot)


def local_copy(spot: Spot) -> Found:
    """A copy for a helper that writes its argument, under a name of its own from there on."""
    source, statement = spot.source, spot.source.statement(spot.span)
    function = source.function_of(statement) if statement is not None else None
    if function is None or not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return
    taken = syntax.names_in(function) | {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)}
    for argument in statement.value.args:
        if not isinstance(argument, (ast.Name, ast.Attribute)):
            continue
        shown = source.segment(argument)
        name = argument.attr if isinstance(argument, ast.Attribute) else argument.id
        if isinstance(argument, ast.Attribute) and name in taken:
            continue
        edit = syntax.insert_before(source, statement, f"{name} = {shown}.clone()")
        uses = [n for n in ast.walk(function) if isinstance(n, ast.Attribute) and syntax.same(n, argument)]
        later = [Edit(source.start(n), source.end(n), name) for n in uses if source.start(n) >= source.start(statement)]
        if edit is not None:
            yield f"hand over a copy: {name} = {shown}.clone()", [edit, *later]


def _in_forward(spot: Spot) -> bool:
    for other in spot.spots("mutated", "cause"):
        statement = other.source.statement(other.span)
        around = other.source.above(statement) if statement is not None else ()
        if any(isinstance(node, Function) and node.name in ("forward", "__call__") for node in around):
            return True
    return False


def under_no_grad(spot: Spot) -> Found:
    """The write, and those like it just below, inside `with torch.no_grad():`."""
    source, statement = spot.source, spot.source.statement(spot.span)
    if statement is None or not source.owns_its_lines(statement):
        return
    block = source.block_of(statement)
    group = [statement]
    for after in block[block.index(statement) + 1 :]:
        if not _is_update(after) or not source.owns_its_lines(after):
            break
        group.append(after)
    torch = syntax.torch_name(source)
    imports = [] if torch else syntax.with_import(source, "torch")
    edit = _wrapped(source, group, f"with {torch or 'torch'}.no_grad():")
    yield "write inside torch.no_grad()", [*imports, edit]


def _is_update(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.AugAssign):
        return ".grad" in ast.unparse(statement)
    return isinstance(statement, ast.Expr) and syntax.is_inplace_call(statement.value)


def _wrapped(source: Source, group: list[ast.stmt], header: str) -> Edit:
    start = source.line_start(group[0].lineno)
    last = group[-1].end_lineno or group[-1].lineno
    indent = source.indent(group[0])
    deeper = "\t" if indent.endswith("\t") else "    "
    lines = source.lines[group[0].lineno - 1 : last]
    body = "".join(line if not line.strip() else deeper + line for line in lines)
    return Edit(start, source.line_start(last + 1), f"{indent}{header}{source.newline}{body}")


def local_value(spot: Spot) -> Found:
    """A local variable for the changed value; the attribute keeps its own."""
    source, statement = spot.source, spot.source.statement(spot.span)
    attribute = _attribute(spot, statement)
    function = source.function_of(statement) if statement is not None else None
    if statement is None or attribute is None or function is None:
        return
    taken = syntax.names_in(function) | {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)}
    name = attribute.attr if attribute.attr not in taken else f"new_{attribute.attr}"
    value = _new_value(spot, statement, attribute)
    if name in taken or value is None:
        return
    edits = [Edit(source.start(statement), source.end(statement), f"{name} = {value}")]
    for node in ast.walk(function):
        later = isinstance(node, ast.Attribute) and syntax.same(node, attribute)
        if later and isinstance(node, ast.Attribute) and source.start(node) > source.end(statement):
            edits.append(Edit(source.start(node), source.end(node), name))
    if len(edits) > 1:
        yield f"a local variable: {name} = {value}", edits
    yield from _functional(spot, function, attribute, name, edits)


def _functional(spot: Spot, function: Function, attribute: ast.Attribute, name: str, edits: list[Edit]) -> Found:
    """The layer that owns the parameter is called with the local value in its place."""
    source, owner, torch = spot.source, attribute.value, syntax.torch_name(spot.source)
    calls = [n for n in ast.walk(function) if isinstance(n, ast.Call) and syntax.same(n.func, owner)]
    calls = [n for n in calls if source.start(n) > edits[0].end and not n.keywords and n.args]
    if torch is None or not calls:
        return
    more = list(edits)
    for call in calls:
        layer, given = source.segment(owner), ", ".join(source.segment(a) for a in call.args)
        text = f'{torch}.func.functional_call({layer}, {{"{attribute.attr}": {name}}}, ({given},))'
        more.append(Edit(source.start(call), source.end(call), text))
    yield f"a local {name}, and {source.segment(owner)} called with it", more


def _attribute(spot: Spot, statement: ast.stmt | None) -> ast.Attribute | None:
    written = writes.written_in(spot, statement) if statement is not None else None
    if isinstance(written, ast.Attribute) and written.attr == "data":
        written = written.value
    return written if isinstance(written, ast.Attribute) else None


def _new_value(spot: Spot, statement: ast.stmt, attribute: ast.Attribute) -> str | None:
    """What the attribute would have become, as an expression."""
    source, own = spot.source, spot.source.segment(attribute)
    if isinstance(statement, ast.Assign):
        return source.segment(statement.value).replace(f"{own}.data", own)
    for _, edits in writes.out_of_place(spot):
        after = source.edited(edits)
        changed = after.statement(spot.span) if after is not None else None
        if isinstance(changed, ast.Assign) and after is not None:
            return after.segment(changed.value).replace(f"{own}.data", own)
    return None


def copy_into(spot: Spot) -> Found:
    """Update the parameter itself, under no_grad."""
    source, statement = spot.source, spot.source.statement(spot.span)
    if not isinstance(statement, ast.Assign) or not source.owns_its_lines(statement):
        return
    torch, target, value = syntax.torch_name(source), source.segment(statement.targets[0]), statement.value
    if torch is None:
        return
    indent = source.indent(statement)
    text = f"with {torch}.no_grad():{source.newline}{indent}    {target}.copy_({source.segment(value)})"
    yield (
        f"update it under no_grad: {target}.copy_(…)",
        [Edit(source.start(statement), source.end(statement), text)],
    )


def grad_mode_view(spot: Spot) -> Found:
    """Take the making of the view out of the no_grad block."""
    source, statement = spot.source, spot.source.statement(spot.span)
    block = source.parents.get(statement) if statement is not None else None
    if statement is None or not isinstance(block, ast.With) or not source.owns_its_lines(statement):
        return
    first, last = source.line_start(statement.lineno), source.line_start((statement.end_lineno or 0) + 1)
    outer, inner = source.indent(block), source.indent(statement)
    text = "".join(outer + line.removeprefix(inner) for line in source.text[first:last].splitlines(keepends=True))
    if len(block.body) == 1:
        yield "make the view in grad mode", [Edit(source.line_start(block.lineno), last, text)]
    elif block.body[-1] is statement:
        yield "make the view in grad mode, below the block", [Edit(first, last, text)]


def no_grad_for_inference(spot: Spot) -> Found:
    """`no_grad` instead of `inference_mode` around the place where the tensor was made."""
    source, statement = spot.source, spot.source.statement(spot.span)
    above = _inference_blocks(source.above(statement) if statement is not None else ())
    # Not made here: by one of the file's blocks, the run tells which.
    for func in above[:1] or _inference_blocks(ast.walk(source.tree))[:LIMIT]:
        end = source.end(func)
        where = "" if above else f" at line {func.lineno}"
        yield f"torch.no_grad() instead of inference_mode(){where}", [Edit(end - len(func.attr), end, "no_grad")]


def _inference_blocks(nodes: Iterable[ast.AST]) -> list[ast.Attribute]:
    """`torch.inference_mode` of `with` statements and decorators."""
    found = []
    for node in nodes:
        said: list[ast.expr] = []
        if isinstance(node, ast.With):
            said = [item.context_expr for item in node.items]
        elif isinstance(node, Function):
            said = list(node.decorator_list)
        for call in said:
            func = call.func if isinstance(call, ast.Call) else call
            if isinstance(func, ast.Attribute) and func.attr == "inference_mode":
                found.append(func)
    return found
