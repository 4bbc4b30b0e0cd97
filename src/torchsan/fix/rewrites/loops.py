"""Loops whose number of turns comes from data or from a size of the example."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax
from torchsan.fix.rewrites.conditions import as_tensors, condition
from torchsan.fix.source import Edit, Source

Found = Iterator[tuple[str, Iterable[Edit]]]
Loop = ast.For | ast.While


def _loop(spot: Spot) -> Loop | None:
    """The loop that the read-out steers: around it, or the next one that reads the name it is kept under."""
    source, statement = spot.source, spot.source.statement(spot.span)
    if statement is None:
        return None
    if isinstance(statement, (ast.For, ast.While)):
        return statement
    inner = source.loop_of(statement)
    kept = syntax.stores(statement)
    for node in ast.walk(source.scope_of(statement)):
        if isinstance(node, (ast.For, ast.While)) and source.start(node) > source.start(statement):
            steered = node.iter if isinstance(node, ast.For) else node.test
            if kept & syntax.loads(steered):
                return node
    return inner


def while_loop(spot: Spot) -> Found:
    """`torch.while_loop`, which exports keep as a loop."""
    source, loop, torch = spot.source, _loop(spot), syntax.torch_name(spot.source)
    if loop is None or torch is None or loop.orelse or "torch.export" not in spot.finding.message:
        return
    if not source.owns_its_lines(loop) or any(_leaves(n) for s in loop.body for n in ast.walk(s)):
        return
    carried = _carried(source, loop)
    if not carried:
        return
    indent, newline = source.indent(loop), source.newline
    taken = syntax.names_in(source.scope_of(loop))
    more, turn = syntax.free_name("more", taken), syntax.free_name("turn", taken)
    count = ""
    if isinstance(loop, ast.For):
        bounds = loop.iter.args if isinstance(loop.iter, ast.Call) and syntax.called(loop.iter) == "range" else []
        if len(bounds) != 1 or not isinstance(loop.target, ast.Name):
            return
        count = loop.target.id if loop.target.id != "_" else syntax.free_name("count", taken)
        test = f"{count} < {as_tensors(bounds[0], torch)}"
    else:
        test = condition(loop.test, torch)
    names = [*([count] if count else []), *carried]
    first, last = source.line_start(loop.body[0].lineno), source.line_start((loop.body[-1].end_lineno or 0) + 1)
    inner = source.indent(loop.body[0])
    body = [f"{indent}    {line.removeprefix(inner)}" for line in source.text[first:last].splitlines()]
    numbers = _numbers(source, loop)
    kept = [f"{torch}.tensor({numbers[name]})" if name in numbers else name for name in carried]
    returned = ", ".join([*([f"{count} + 1"] if count else []), *(f"{name}.clone()" for name in carried)])
    start = ", ".join([*([f"{torch}.zeros((), dtype={torch}.int64)"] if count else []), *kept])
    lines = [
        f"def {more}({', '.join(names)}):",
        f"{indent}    return {test}",
        "",
        f"{indent}def {turn}({', '.join(names)}):",
        *body,
        f"{indent}    return {returned}{',' * (len(names) == 1)}",
        "",
        f"{indent}{', '.join(names)}{',' * (len(names) == 1)} = {torch}.while_loop({more}, {turn}, ({start},))",
    ]
    edit = Edit(source.start(loop), source.end(loop), newline.join(lines))
    yield "a loop that captures keep: torch.while_loop", [edit, *_tensor_above(spot, loop, torch)]


def _leaves(node: ast.AST) -> bool:
    return isinstance(node, (ast.Break, ast.Continue, ast.Return, ast.Yield))


def _carried(source: Source, loop: Loop) -> list[str]:
    """Names that a turn changes and that the next turn, or what follows, reads."""
    before = {
        n.id
        for n in ast.walk(source.scope_of(loop))
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and source.start(n) < source.start(loop)
    }
    scope = source.function_of(loop)
    before |= {a.arg for a in ast.walk(scope.args) if isinstance(a, ast.arg)} if scope is not None else set()
    changed = {name for s in loop.body for name in syntax.stores(s)}
    return sorted(changed & before)


def _numbers(source: Source, loop: Loop) -> dict[str, str]:
    """Names that hold a plain number when the loop begins; it goes through the turns as a tensor."""
    found = {}
    for statement in source.block_of(loop)[: source.block_of(loop).index(loop)]:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            if syntax.is_number(statement.value):
                found[statement.targets[0].id] = source.segment(statement.value)
            else:
                found.pop(statement.targets[0].id, None)
    return found


def _tensor_above(spot: Spot, loop: Loop, torch: str) -> list[Edit]:
    """The count stays a tensor where it is read out above the loop."""
    source, statement = spot.source, spot.source.statement(spot.span)
    if not isinstance(statement, ast.Assign) or source.start(statement) > source.start(loop):
        return []
    text = as_tensors(statement.value, torch)
    return [Edit(source.start(statement.value), source.end(statement.value), text)]


def masked_loop(spot: Spot) -> Found:
    """A loop of fixed length that data may leave early: every turn runs, those after the exit change nothing."""
    source, statement, torch = spot.source, spot.source.statement(spot.span), syntax.torch_name(spot.source)
    loop = source.loop_of(statement) if statement is not None else None
    if not isinstance(loop, ast.For) or loop.orelse or torch is None or not source.owns_its_lines(loop):
        return
    exits = [s for s in loop.body if isinstance(s, ast.If) and _is_break(s)]
    others = [n for s in loop.body if s not in exits for n in ast.walk(s)]
    if len(exits) != 1 or any(_leaves(n) for n in others):
        return
    before = _carried(source, loop)
    running = syntax.free_name("running", syntax.names_in(source.scope_of(loop)))
    made = syntax.insert_before(source, loop, f"{running} = {torch}.ones((), dtype={torch}.bool)")
    if made is None:
        return
    edits = [made]
    for one in loop.body:
        if one is exits[0]:
            assert isinstance(one, ast.If)
            text = f"{running} = {torch}.logical_and({running}, {torch}.logical_not({condition(one.test, torch)}))"
            edits.append(Edit(source.start(one), source.end(one), text))
        elif isinstance(one, (ast.Assign, ast.AugAssign)):
            edits += _masked(source, one, before, running, torch)
        elif syntax.stores(one) & set(before) or not isinstance(one, ast.Expr):
            return
    yield "run every turn, and keep the values after the exit with torch.where", edits


def _is_break(branch: ast.If) -> bool:
    return not branch.orelse and len(branch.body) == 1 and isinstance(branch.body[0], ast.Break)


def _masked(
    source: Source, statement: ast.Assign | ast.AugAssign, names: list[str], running: str, torch: str
) -> list[Edit]:
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    if not isinstance(target, ast.Name) or target.id not in names:
        return []
    value = statement.value
    if isinstance(statement, ast.AugAssign):
        value = ast.BinOp(ast.Name(target.id, ast.Load()), statement.op, statement.value)
    text = f"{target.id} = {torch}.where({running}, {ast.unparse(value)}, {target.id})"
    return [Edit(source.start(statement), source.end(statement), text)]


def whole_dimension(spot: Spot) -> Found:
    """A list filled by a loop over a dimension and joined again: the work is done on the whole tensor at once."""
    source, loop = spot.source, _loop(spot)
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name) or loop.orelse:
        return
    block = source.block_of(loop)
    at = block.index(loop)
    appended = [s for s in loop.body if _appends(s)]
    if len(appended) != 1 or loop.body[-1] is not appended[0] or at + 1 >= len(block):
        return
    call = appended[0].value  # type: ignore[attr-defined]
    name = ast.unparse(call.func.value)
    joins = [
        n
        for s in block[at + 1 :]
        for n in ast.walk(s)
        if isinstance(n, ast.Call)
        and syntax.called(n) in ("cat", "stack", "concat")
        and n.args
        and ast.unparse(n.args[0]) == name
    ]
    lists = [s for s in block[:at] if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == name]
    if len(joins) != 1 or len(lists) != 1 or not source.owns_its_lines(lists[0]) or not source.owns_its_lines(loop):
        return
    index = loop.target.id
    moved = [ast.unparse(_Whole(index).visit(copy.deepcopy(s))) for s in loop.body[:-1]]
    value = ast.unparse(_Whole(index).visit(copy.deepcopy(call.args[0])))
    if any(index in syntax.names_in(ast.parse(text)) for text in (*moved, value)):
        return
    first, last = source.line_start(loop.lineno), source.line_start((loop.end_lineno or 0) + 1)
    indent = source.indent(loop)
    edits = [
        Edit(source.line_start(lists[0].lineno), source.line_start((lists[0].end_lineno or 0) + 1), ""),
        Edit(first, last, "".join(f"{indent}{line}{source.newline}" for line in moved)),
        Edit(source.start(joins[0]), source.end(joins[0]), value),
    ]
    yield "work on the whole dimension at once", edits


def _appends(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and syntax.called(call) == "append" and len(call.args) == 1


class _Whole(ast.NodeTransformer):
    """`x[:, i]` and `x[:, i:i + 1]` as `x`."""

    def __init__(self, index: str) -> None:
        self.index = index

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if self.index in syntax.names_in(node.slice) and isinstance(node.ctx, ast.Load):
            return node.value
        return node
