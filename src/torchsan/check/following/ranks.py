"""Mistakes of programs of several processes that the order of a function's statements tells."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchsan.check.facts import Fact
from torchsan.check.following.blocks import (
    Body,
    blocks_of,
    calls_in,
    functions_of,
    is_true,
    keyword_of,
    leaves,
    names_bound,
    names_read,
    root_of,
    simple_statements,
)
from torchsan.check.following.rank_tests import told_apart
from torchsan.check.following.sent_models import sent_models
from torchsan.check.modelling.names import words
from torchsan.check.reading.program import Program
from torchsan.model import events, parallel_events

_SPACE = "torch.distributed."
_COLLECTIVES = words(
    """all_reduce broadcast reduce all_gather all_gather_into_tensor gather scatter reduce_scatter
    reduce_scatter_tensor all_to_all all_to_all_single barrier all_gather_object broadcast_object_list
    gather_object monitored_barrier"""
)
_POSTED = frozenset({"isend", "irecv"})
# In-place on their first argument, so that a copy given to them is lost.
_IN_PLACE = frozenset({"all_reduce", "broadcast", "reduce"})
_SURE_COPIES = frozenset({"clone", "sum", "mean", "max", "min", "norm"})
_WAITS = ("wait", "synchronize", "barrier", "is_completed", "get_future")


def rank_facts(program: Program) -> list[Fact]:
    found: list[Fact] = []
    for _, _, body in functions_of(program.tree):
        loops = _after_loops(body)
        for block in blocks_of(body):
            for index, statement in enumerate(block):
                after = block[index + 1 :]
                found += _flights(program, statement, after, body, loops.get(id(block)))
                found += _lost_copy(program, statement, after)
                found += _sharded_late(program, statement, after, body)
                found += _one_rank_only(program, statement, after, body)
    return [*found, *sent_models(program)]


def collective(call: ast.AST, program: Program) -> str:
    """The name of the collective that a call is; empty for other calls."""
    if not isinstance(call, ast.Call):
        return ""
    dotted = program.dotted(call.func)
    name = dotted.rpartition(".")[2]
    return name if dotted == _SPACE + name and name in _COLLECTIVES | _POSTED else ""


def _line(program: Program, node: ast.AST) -> events.Line:
    return events.Line(program.place(node))


# --- a collective that goes on in the background ---------------------------------------------------


def _after_loops(body: Body) -> dict[int, tuple[ast.For, Body]]:
    """By the body of each `for`: the loop, and what comes after it."""
    return {
        id(node.body): (node, block[index + 1 :])
        for block in blocks_of(body)
        for index, node in enumerate(block)
        if isinstance(node, ast.For)
    }


def _flights(
    program: Program, statement: ast.stmt, after: Body, body: Body, loop: tuple[ast.For, Body] | None
) -> Iterator[Fact]:
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    op = collective(value, program) if value is not None else ""
    if not op or not isinstance(value, ast.Call) or not value.args or not isinstance(value.args[0], ast.Name):
        return
    if op not in _POSTED and not is_true(keyword_of(value, "async_op")):
        return
    work = ""
    if isinstance(statement, ast.Assign):
        if len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name):
            return
        work = statement.targets[0].id
    tensor = value.args[0].id
    waited = bool(work) and any(work in names_read(node) for node in body)
    touched = _touched(after, {tensor}, work if waited else "", program, reads=op != "isend")
    if touched is None and not waited and loop is not None and not after:
        # What was sent round by round is read when the loop is over.
        names = names_read(loop[0].iter) | {tensor} if tensor in names_bound(loop[0].target) else {tensor}
        touched = _touched(loop[1], names, "", program, reads=op != "isend")
    if touched is None:
        return
    event = parallel_events.TouchedInFlight(
        events.Memory(tensor),
        op,
        _line(program, value),
        _line(program, touched),
        writes=_writes(touched, tensor),
        waited=waited,
    )
    yield Fact(event, program.place(touched if waited else value))


def _touched(after: Body, tensors: set[str], work: str, program: Program, *, reads: bool) -> ast.stmt | None:
    """The statement that uses a tensor before anybody may have waited."""
    for index, node in enumerate(after):
        if any(getattr(c.func, "attr", "") in _WAITS or collective(c, program) for c in calls_in(node)):
            return None
        if work and work in names_read(node):
            return None
        touching = [s for s in simple_statements(node) if _uses(s, tensors, reads)]
        if touching:
            # That it is waited for later shows that this is no mistake of ours in telling who waits.
            later = any(work in names_read(n) for n in after[index + 1 :])
            return touching[0] if not work or later else None
        if tensors & names_bound(node) or isinstance(node, ast.While):
            return None
    return None


def _uses(node: ast.stmt, tensors: set[str], reads: bool) -> bool:
    if _keeps(node):
        # Put away for later, after somebody has waited.
        return False
    return any(_writes(node, tensor) for tensor in tensors) or (reads and bool(tensors & names_read(node)))


def _keeps(node: ast.stmt) -> bool:
    """`kept.append(t)`."""
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and getattr(call.func, "attr", "") in ("append", "extend", "put", "add")


def _writes(node: ast.stmt, tensor: str) -> bool:
    """Whether a statement changes the elements of a tensor: `t += 1`, `t[0] = 1`, `t.zero_()`."""
    if isinstance(node, ast.AugAssign):
        return root_of(node.target) == tensor
    if isinstance(node, ast.Assign):
        return any(isinstance(t, ast.Subscript) and root_of(t) == tensor for t in node.targets)
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        name = call.func.attr
        return name.endswith("_") and not name.endswith("__") and root_of(call.func.value) == tensor
    return False


# --- a copy that only the collective sees ----------------------------------------------------------


def _lost_copy(program: Program, statement: ast.stmt, after: Body) -> Iterator[Fact]:
    call = statement.value if isinstance(statement, ast.Expr) else None
    op = collective(call, program) if call is not None else ""
    if op not in _IN_PLACE or not isinstance(call, ast.Call) or not call.args:
        return
    given = call.args[0]
    owner = _copied(given)
    if not owner or not any(owner in names_read(node) for node in after):
        return
    shown = program.words(given)
    event = parallel_events.ResultDropped(op, _line(program, call), shown, owner)
    yield Fact(event, program.place(call))


def _copied(node: ast.expr) -> str:
    """The name of which an expression is surely a copy; empty for other expressions."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SURE_COPIES:
        return node.func.value.id if isinstance(node.func.value, ast.Name) else ""
    return ""


# --- optimizers made before fully_shard ------------------------------------------------------------


def _sharded_late(program: Program, statement: ast.stmt, after: Body, body: Body) -> Iterator[Fact]:
    made = statement.value if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if not isinstance(made, ast.Call) or not program.dotted(made.func).startswith("torch.optim."):
        return
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    model = _owner_of_parameters(made)
    if not isinstance(target, ast.Name) or not model:
        return
    for index, node in enumerate(after):
        if {model, target.id} & names_bound(node):
            return
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and program.dotted(call.func).rpartition(".")[2] == "fully_shard":
            if not call.args or not isinstance(call.args[0], ast.Name) or call.args[0].id != model:
                continue
            if any(target.id in names_bound(n) or _refills(n, target.id) for n in after[index:]):
                return
            event = parallel_events.ShardTouched(
                "replaced", events.Memory(target.id), _line(program, made), _line(program, call)
            )
            yield Fact(event, program.place(made))
            return


def _owner_of_parameters(made: ast.Call) -> str:
    """`net`, of `SGD(net.parameters(), …)`."""
    given = made.args[0] if made.args else keyword_of(made, "params")
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "parameters":
        return given.func.value.id if isinstance(given.func.value, ast.Name) else ""
    return ""


def _refills(node: ast.stmt, optimizer: str) -> bool:
    """Whether the parameters of an optimizer are exchanged by hand."""
    return any(
        isinstance(n, ast.Attribute) and n.attr in ("param_groups", "add_param_group") and root_of(n) == optimizer
        for n in ast.walk(node)
    )


# --- collectives that only some ranks reach --------------------------------------------------------


def _one_rank_only(program: Program, statement: ast.stmt, after: Body, body: Body) -> Iterator[Fact]:
    if not isinstance(statement, ast.If):
        return
    apart = told_apart(statement.test, program, body)
    if apart is None:
        return
    mine, others = statement.body, statement.orelse
    calls = _called(mine, program)
    if leaves(mine) and not others:
        # `if rank != 0: return`: what follows is for the other ranks.
        mine, others, apart = after, mine, not apart
        calls = _called(after, program)
    elif _met_elsewhere(statement, program, body, calls):
        return
    if _called(others, program):
        return
    for op, call in calls:
        if keyword_of(call, "group") is not None or op in _POSTED:
            continue
        waiting, absent = (0, 1) if apart else (1, 0)
        event = parallel_events.RankStuck(
            (
                parallel_events.Stand(waiting, op, _line(program, call), waits=True),
                parallel_events.Stand(absent, "which passes by", None),
            )
        )
        yield Fact(event, program.place(call))
        return


def _called(body: Body, program: Program) -> list[tuple[str, ast.Call]]:
    """The collectives of a body, but for those of functions that are only defined there."""
    found: list[tuple[str, ast.Call]] = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        calls = sorted(calls_in(node), key=lambda c: (c.lineno, c.col_offset))
        found += [(op, call) for call in calls if (op := collective(call, program))]
    return found


def _met_elsewhere(statement: ast.If, program: Program, body: Body, calls: list[tuple[str, ast.Call]]) -> bool:
    """Whether other lines of the function make the same calls on other conditions: `if rank != 0: barrier()`."""
    inside = {id(call) for _, call in calls}
    wanted = {op for op, _ in calls}
    return any(op in wanted and id(call) not in inside for op, call in _called(body, program))
