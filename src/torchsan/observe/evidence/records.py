"""What a line reaches stored data through: a shallow copy of who keeps it, a record of a collection, a memo."""

from __future__ import annotations

import ast
from types import FrameType

from torchsan.observe import expressions as syntax
from torchsan.observe.evidence.arguments import passed_to
from torchsan.observe.evidence.scene import Writing, call_of
from torchsan.observe.holders.lineage import lineage
from torchsan.observe.holders.resolving import root_name
from torchsan.observe.holders.slots import Holding
from torchsan.observe.holders.storing import stored_at


def is_copied(writing: Writing, holding: Holding) -> bool:
    """Does the line come by another object of the keeper's class, that has the tensor under the same name?

    `sample = copy.copy(samples[i]); sample.pos *= 2`: who makes a copy means to leave the original alone.
    """
    kind, key = holding.step.of, holding.step.key
    if kind is None or holding.step.owner in {id(ancestor.value) for ancestor in writing.lineage}:
        return False
    beside = {h.step.owner for h in writing.census.holdings if h.step.of is kind and h.step.key == key}
    return any(type(a.value) is kind and id(a.value) in beside for a in writing.lineage)


def is_of_a_record(holding: Holding) -> bool:
    """Is it one part of an entry of a collection, as `batches[3][0]` and `samples[3].image` are?"""
    kinds = [step.kind for step in holding.step.up()]
    return len(kinds) >= 3 and kinds[0] in ("item", "attribute") and kinds[1] == "item"


def is_given_for_its_value(frames: list[FrameType]) -> bool:
    """Does the caller want what the running function hands back, and not put it where it took the argument?"""
    found = call_of(frames[1]) if len(frames) > 1 else None
    if found is None:
        return False
    call, file, _ = found
    statement = file.statement(call)
    if statement is None or isinstance(file.parents.get(call), ast.Expr):
        return False
    if not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return True
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    came_by = {ast.unparse(a.node) for part in passed_to(call) for a in lineage(part, frames[1:])}
    came_by |= {ast.unparse(part) for part in passed_to(call)}
    bound = [part for target in targets for part in ast.walk(target) if isinstance(part, (ast.Name, ast.Attribute))]
    return not any(isinstance(part.ctx, ast.Store) and ast.unparse(part) in came_by for part in bound) and not any(
        isinstance(target, ast.Subscript) and ast.unparse(target.value) in came_by for target in targets
    )


def is_memo(holding: Holding, frames: list[FrameType]) -> bool:
    """Is it what a function makes once, keeps and hands back ever after: `if key not in tables: tables[key] = …`?"""
    put = stored_at(holding.step, frames, bound=holding.step.kind != "item")
    file = syntax.file_of(put.place.path) if put is not None else None
    node = file.at(put.place) if file is not None and put is not None else None
    if file is None or node is None:
        return False
    function, kept = file.function(node), holding.step.path.partition("[")[0].rpartition(".")[2]
    conditions = [around for around in file.up(node) if isinstance(around, ast.If)]
    if not any(_is_of_absence(around.test) for around in conditions if function in file.up(around)):
        return False
    targets = {root_name(t) for t in node.targets} if isinstance(node, ast.Assign) else set()
    returned = (n.value for n in file.within(function) if isinstance(n, ast.Return) and n.value is not None)
    return any(kept in ast.unparse(value) or root_name(value) in targets - {"self"} for value in returned)


def _is_of_absence(test: ast.expr) -> bool:
    """`key not in table`, `table is None`, `not hasattr(…)`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return True
    return isinstance(test, ast.Compare) and any(isinstance(op, (ast.NotIn, ast.Is)) for op in test.ops)
