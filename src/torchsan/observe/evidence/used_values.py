"""An in-place call that is made for its value: whoever reads the receiver again finds it changed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchsan.model.events import Event, InputOverwritten, Line, Memory
from torchsan.observe import expressions as syntax
from torchsan.observe.evidence.scene import Writing
from torchsan.observe.holders.manner import Manner
from torchsan.observe.holders.reading import next_reads, reads_values
from torchsan.observe.objects import is_tensor


def used_for_its_value(writing: Writing) -> Iterator[Event]:
    """`h = o * c.tanh_()`, and `c` is read again: a function of `c` was wanted, not a change of it."""
    file, node, written = writing.file, writing.node, writing.written
    if not isinstance(node, ast.Call) or not isinstance(written, ast.Name) or file is None:
        return
    whole: ast.AST = node
    while isinstance(file.parents.get(whole), ast.Attribute):  # a chain of calls on the result
        outer = file.parents[file.parents[whole]]
        if not isinstance(outer, ast.Call):
            break
        whole = outer
    user = file.parents.get(whole)
    if isinstance(user, ast.Tuple) and isinstance(file.parents.get(user), ast.Expr):
        return  # `i.sigmoid_(), f.sigmoid_()`: several statements in one line
    if isinstance(user, ast.Expr):
        yield from _read_along_the_chain(writing, node, whole, written.id)
        return
    beside = _beside_itself(user, whole, written.id)
    if not beside and (writing.manner is not Manner.TRANSFORMED or _constant_counter(writing)):
        return
    if not _takes_value(user, whole, written.id):
        return
    reads = next_reads(writing.top, written.id)
    if reads:
        yield InputOverwritten(
            Memory(written.id, shape=tuple(writing.tensor.shape)), writing.event, Line(writing.site.place),
            reads[0].place, syntax.text_of(node.func),
            certainty="proved" if beside or not _data(writing) else "possible",
        )  # fmt: skip


def _read_along_the_chain(writing: Writing, node: ast.Call, whole: ast.AST, name: str) -> Iterator[Event]:
    """`x.mul_(a).add_(x.flip(0))`: what is added is looked up after `x` has been scaled."""
    file = writing.file
    first = set(ast.walk(node))
    for later in ast.walk(whole):
        if later in first or not isinstance(later, ast.Name) or later.id != name or file is None:
            continue
        parent = file.parents.get(later)
        if isinstance(parent, ast.Attribute) and parent.attr == "grad":
            continue
        if isinstance(later.ctx, ast.Load) and reads_values(later, file):
            yield InputOverwritten(
                Memory(name, shape=tuple(writing.tensor.shape)), writing.event, Line(writing.site.place),
                file.place(later, writing.site.place), syntax.text_of(node.func), certainty="possible",
            )  # fmt: skip
            return


def _beside_itself(user: ast.AST | None, whole: ast.AST, name: str) -> bool:
    """`p - p.sub_(u)`: the value of the call and the name are taken for two values of one expression."""
    if isinstance(user, ast.BinOp):
        others: list[ast.expr] = [user.left, user.right]
    elif isinstance(user, ast.Call):
        others = list(user.args)
    else:
        return False
    return any(isinstance(other, ast.Name) and other.id == name for other in others if other is not whole)


def _takes_value(user: ast.AST | None, whole: ast.AST, name: str) -> bool:
    if isinstance(user, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Tuple)):
        return True
    if isinstance(user, ast.Call):
        return whole in user.args
    if isinstance(user, ast.keyword):
        return user.arg != "out"
    if isinstance(user, ast.Assign):
        return not any(isinstance(n, ast.Name) and n.id == name for t in user.targets for n in ast.walk(t))
    return False


def _constant_counter(writing: Writing) -> bool:
    """`n.add_(1)`: a number that counts is meant to change."""
    return bool(writing.tensor.numel() == 1)


def _data(writing: Writing) -> bool:
    return any(is_tensor(value) for value in writing.args[1:])
