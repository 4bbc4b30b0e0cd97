"""Conditions that hold on rank 0 only, or on all ranks but 0."""

from __future__ import annotations

import ast

from torchsan.check.following.blocks import Body, blocks_of, names_bound
from torchsan.check.reading.program import Program

_ASKS_RANK = ("torch.distributed.get_rank", "torch.distributed.get_node_local_rank")
_NAMES = frozenset({"rank", "local_rank", "global_rank", "world_rank"})


def told_apart(test: ast.expr, program: Program, body: Body) -> bool | None:
    """True for a test that holds on rank 0 alone, False for one that holds on the others; None for other tests."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = told_apart(test.operand, program, body)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        found = [told_apart(part, program, body) for part in test.values]
        return next((answer for answer in found if answer is not None), None)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, right = test.left, test.comparators[0]
    if not (isinstance(right, ast.Constant) and right.value == 0 and not isinstance(right.value, bool)):
        return None
    if not _is_rank(left, program, body):
        return None
    if isinstance(test.ops[0], ast.Eq):
        return True
    return False if isinstance(test.ops[0], ast.NotEq | ast.Gt) else None


def _is_rank(node: ast.expr, program: Program, body: Body) -> bool:
    if isinstance(node, ast.Call):
        return program.dotted(node.func) in _ASKS_RANK
    if not isinstance(node, ast.Name) or node.id not in _NAMES:
        return False
    bound = [s for block in blocks_of(body) for s in block if isinstance(s, ast.Assign) and node.id in names_bound(s)]
    # A rank within a group of its own is no rank of the world.
    return all("group" not in ast.unparse(s.value) for s in bound)
