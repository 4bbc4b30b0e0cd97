"""What ranks do to each other: waits, whole memory, copies, and the order of building."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax
from torchsan.fix.rewrites.order import moved
from torchsan.fix.source import Edit, Source

Found = Iterator[tuple[str, Iterable[Edit]]]
COLLECTIVES = (
    *("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "scatter"),
    *("reduce_scatter_tensor", "all_to_all", "all_to_all_single", "gather", "recv"),
)
WRAPPERS = ("DDP", "DistributedDataParallel")


def wait_first(spot: Spot) -> Found:
    """Wait before the line that touches memory in flight."""
    source, touching = spot.source, spot.source.statement(spot.span)
    if touching is None:
        return
    block = source.block_of(touching)
    later = block[block.index(touching) + 1 :] if touching in block else []
    waiting = next((statement for statement in later if _waits(statement)), None)
    if waiting is not None:
        edits = moved(source, [waiting], touching)
        if edits is not None:
            yield "wait before this line", edits
    work = _work(spot, touching)
    if work:
        edit = syntax.insert_before(source, touching, f"{work}.wait()")
        if edit is not None:
            yield f"{work}.wait() before this line", [edit]


def _waits(statement: ast.stmt) -> bool:
    """`work.wait()`, or a loop that does nothing else."""
    if isinstance(statement, ast.For):
        return len(statement.body) == 1 and _waits(statement.body[0])
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "wait"


def _work(spot: Spot, touching: ast.stmt) -> str:
    """The name of the Work, where the call that gave it stands in the same function."""
    for cause in spot.spots("cause"):
        call = cause.source.statement(cause.span)
        here = cause.source is spot.source and spot.source.scope_of(touching) is spot.source.scope_of(call or touching)
        if here and isinstance(call, ast.Assign) and isinstance(call.targets[0], ast.Name):
            return call.targets[0].id
    return ""


def wait_at_once(spot: Spot) -> Found:
    """Wait where the collective is called."""
    call = _collective(spot)
    if call is not None and any(k.arg == "async_op" for k in call.keywords):
        at = spot.source.end(call)
        statement = spot.source.statement(spot.span)
        if isinstance(statement, ast.Expr) and statement.value is call:
            yield "wait for it at once", [Edit(at, at, ".wait()")]


def contiguous_and_back(spot: Spot) -> Found:
    """Give the collective whole memory, and copy the result back."""
    source, call, statement = spot.source, _collective(spot), spot.source.statement(spot.span)
    if call is None or not isinstance(statement, ast.Expr) or statement.value is not call or not call.args:
        return
    given = call.args[0]
    if syntax.variable_of(given) is None:
        return
    name = syntax.free_name("whole", syntax.names_in(source.tree))
    text = syntax.as_receiver(source.segment(given), given)
    before = syntax.insert_before(source, statement, f"{name} = {text}.contiguous()")
    back = text if isinstance(given, ast.Subscript) else f"{text}[...]"
    after = syntax.insert_after(source, statement, f"{back} = {name}")
    if before is not None and after is not None:
        yield (
            "reduce contiguous memory and copy it back",
            [
                before,
                Edit(source.start(given), source.end(given), name),
                after,
            ],
        )


def clone_for_collective(spot: Spot) -> Found:
    """The collective writes a copy that takes the name; what was saved stays."""
    source, call, statement = spot.source, _collective(spot), spot.source.statement(spot.span)
    if call is None or statement is None or not call.args:
        return
    variable = syntax.variable_of(call.args[0])
    if isinstance(variable, ast.Name):
        edit = syntax.insert_before(source, statement, f"{variable.id} = {variable.id}.clone()")
        if edit is not None:
            yield f"let the collective write a copy: {variable.id} = {variable.id}.clone() before it", [edit]


def without_buffer_broadcast(spot: Spot) -> Found:
    """Where ranks are meant to have buffers of their own, DDP need not send rank 0's."""
    for call in [node for node in ast.walk(spot.source.tree) if isinstance(node, ast.Call)]:
        named = any(k.arg == "broadcast_buffers" for k in call.keywords)
        if syntax.called(call) in WRAPPERS and call.args and not named:
            at = spot.source.end(call) - 1
            comma = "" if spot.source.text[:at].rstrip().endswith(",") else ", "
            edit = Edit(at, at, f"{comma}broadcast_buffers=False")
            yield "leave each rank its buffers: broadcast_buffers=False", [edit]


def optimizer_after_sharding(spot: Spot) -> Found:
    """Build the optimizer when the parameters are the sharded ones."""
    source, made = spot.source, spot.source.statement(spot.span)
    if not isinstance(made, ast.Assign):
        return
    block = source.block_of(made)
    later = block[block.index(made) + 1 :] if made in block else []
    sharding = [s for s in later if any(_is_sharding(node) for node in ast.walk(s))]
    names = syntax.stores(made)
    if not sharding:
        return
    between = later[: later.index(sharding[-1]) + 1]
    rest = later[len(between) :]
    if rest and not any(names & (syntax.loads(s) | syntax.stores(s)) for s in between):
        edits = moved(source, [made], rest[0])
        if edits is not None:
            yield "build the optimizer after fully_shard", edits


def _is_sharding(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and syntax.called(node) == "fully_shard"


def load_before_wrapping(spot: Spot) -> Found:
    """Write the weights before DDP takes them: it then sends rank 0's to all."""
    source = spot.source
    statement = source.statement(spot.span)
    for write in (statement, *source.above(statement)) if statement is not None else ():
        if not isinstance(write, ast.stmt) or isinstance(write, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return
        block = source.block_of(write)
        for wrap in reversed(block[: block.index(write)] if write in block else []):
            names = _wrapped_by(wrap, write)
            if names is not None and source.owns_its_lines(write) and source.owns_its_lines(wrap):
                yield "write the weights before DDP wraps them", _moved_in_front(source, write, wrap, *names)
                return


def _wrapped_by(wrap: ast.stmt, write: ast.stmt) -> tuple[str, str] | None:
    """`outer = DDP(inner)` for a statement that writes `outer.module` or `inner`."""
    if not isinstance(wrap, ast.Assign) or not isinstance(wrap.value, ast.Call) or not wrap.value.args:
        return None
    outer, inner = wrap.targets[0], wrap.value.args[0]
    if not isinstance(outer, ast.Name) or syntax.called(wrap.value) not in WRAPPERS:
        return None
    text = ast.unparse(inner)
    touches = f"{outer.id}.module" in ast.unparse(write) or text in ast.unparse(write)
    return (outer.id, text) if touches else None


def _moved_in_front(source: Source, write: ast.stmt, wrap: ast.stmt, outer: str, inner: str) -> list[Edit]:
    first, last = source.line_start(write.lineno), source.line_start((write.end_lineno or 0) + 1)
    text = source.text[first:last].replace(f"{outer}.module", inner)
    text = text if text.endswith(("\n", "\r")) else text + source.newline
    at = source.line_start(wrap.lineno)
    return [Edit(first, last, ""), Edit(at, at, text)]


def _collective(spot: Spot) -> ast.Call | None:
    """The call of a collective that the span is, or is part of."""
    statement = spot.source.statement(spot.span)
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call)] if statement is not None else []
    return next((call for call in calls if syntax.called(call) in COLLECTIVES), None)
