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

# Methods and functions that give the same elements in another order.
_REARRANGING = {
    *("flip", "fliplr", "flipud", "roll", "rot90", "t", "transpose", "permute", "index_select", "view", "reshape"),
    *("clone", "contiguous", "detach", "to", "float", "mul"),
}


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
    along = list(_read_along_the_chain(writing, node, whole, written.id))
    if along or isinstance(user, ast.Expr):
        yield from along
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
                file.place(later, writing.site.place), syntax.text_of(node.func),
                certainty="proved" if _is_blend(file, node, name) else "possible",
            )  # fmt: skip
            return


def _is_blend(file: syntax.File, scaling: ast.Call, name: str) -> bool:
    """`x.mul_(w).add_(x.flip(0), alpha=1 - w)`: a sum of `x` and of `x` rearranged, each with its weight.

    With the scaled `x` in both parts the whole would only be scaled, and that is written in one call.
    """
    method = file.parents.get(scaling)
    adding = file.parents.get(method) if isinstance(method, ast.Attribute) else None
    if not isinstance(scaling.func, ast.Attribute) or scaling.func.attr not in ("mul_", "div_", "multiply_", "divide_"):
        return False
    if not isinstance(method, ast.Attribute) or method.attr not in ("add_", "sub_", "subtract_"):
        return False
    return isinstance(adding, ast.Call) and bool(adding.args) and _is_rearranged(adding.args[0], name)


def _is_rearranged(node: ast.expr, name: str) -> bool:
    """`x`, its elements in another order, and these times something else."""
    if isinstance(node, ast.Name):
        return node.id == name
    if isinstance(node, ast.Subscript):
        return _is_rearranged(node.value, name)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _REARRANGING:
        owner = node.func.value
        return _is_rearranged(owner, name) or (bool(node.args) and _is_rearranged(node.args[0], name))
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        scaled, by = (node.left, node.right) if _is_rearranged(node.left, name) else (node.right, node.left)
        divides = isinstance(node.op, ast.Div) and scaled is node.right
        return not divides and _is_rearranged(scaled, name) and name not in {getattr(n, "id", "") for n in ast.walk(by)}
    return False


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
