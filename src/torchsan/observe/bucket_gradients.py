"""Gradients that lie in DDP's buckets and are kept from one iteration to the next.

Torch hands the same tensor object out in every iteration, so that a read of the kept one cannot be told from a read of
the new one by what is read. Who holds it over the next forward is a fact; that the holder is read before it is filled
anew is told by its source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torchsan.model.events import Line, Memory
from torchsan.model.parallel_events import KeptGradient
from torchsan.observe import expressions as syntax
from torchsan.observe.holders.census import take_census
from torchsan.observe.holders.slots import Holding, Step
from torchsan.observe.holders.storing import PUTTING
from torchsan.observe.names import local_names
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import frame_place, user_frames
from torchsan.observe.tensors import memory_of

LOOKS = 4
Scope = ast.FunctionDef | ast.AsyncFunctionDef


class BucketGradients:
    """Of one DDP module with `gradient_as_bucket_view=True`."""

    def __init__(self) -> None:
        self._memories: set[int] = set()
        # Buckets hold many gradients: which is which, by address.
        self._names: dict[int, str] = {}
        self._looks = 0

    def passed(self, ddp: Any) -> None:
        """After a backward: this is where its gradients lie."""
        if self._looks < LOOKS:
            for name, parameter in ddp.module.named_parameters():
                memory = memory_of(parameter.grad) if parameter.grad is not None else None
                if memory is not None:
                    self._memories.add(memory)
                    self._names[parameter.grad.data_ptr()] = name

    def forward(self, recorder: Recorder, frame: FrameType) -> None:
        """Before a forward whose backward fills the buckets anew: who still holds what is in them?"""
        if not self._memories or self._looks >= LOOKS:
            return
        self._looks += 1
        frames = user_frames(frame)
        for holding in take_census(frame).holdings:
            if memory_of(holding.value) in self._memories and not _is_gradient(holding.step):
                line = self._kept(holding, frames)
                if line is not None:
                    gradient = self._names.get(holding.extent.address, "")
                    holder = _named(holding.step).path
                    recorder.emit(KeptGradient(Memory(gradient), holder, line, Line(frame_place(frames[0]))))
                    self._looks = LOOKS
                    return

    def _kept(self, holding: Holding, frames: list[FrameType]) -> Line | None:
        """The line that keeps a gradient whose holder is read before it is filled anew."""
        step = _named(holding.step)
        name = step.part.strip(".")
        if step.kind in ("local", "global") and step.above is None:
            return _kept_in_name(name, frames)
        if step.kind == "attribute":
            return _kept_in_attribute(name, frames)
        return None


def _is_gradient(step: Step) -> bool:
    return any(one.kind == "grad" for one in step.up())


def _named(step: Step) -> Step:
    """The step that has a name: the list's, for an entry of a list."""
    return next((one for one in step.up() if one.kind not in ("item", "young")), step)


# -- names ------------------------------------------------------------------------------------------


def _kept_in_name(name: str, frames: list[FrameType]) -> Line | None:
    for user in frames[:2]:
        place = frame_place(user)
        file = syntax.file_of(place.path)
        call = file.at(place) if file else None
        if file is None or not isinstance(call, ast.expr) or name not in local_names(user):
            continue
        if _read_later(file, call, name):
            statement = _keeping(file.function(call), name, place.line)
            return Line(file.place(statement, place)) if statement is not None else None
    return None


def _keeping(function: ast.AST, name: str, line: int) -> ast.stmt | None:
    """The statement that last put something into a name, or into the list or dictionary of that name."""
    found = [node for node in ast.walk(function) if isinstance(node, (ast.Assign, ast.Expr)) and _fills(node, name)]
    before = [node for node in found if node.lineno <= line]
    return max(before or found, key=lambda node: node.lineno, default=None)


def _fills(statement: ast.Assign | ast.Expr, name: str) -> bool:
    value = statement.value
    if isinstance(statement, ast.Assign):
        targets = [inner for target in statement.targets for inner in ast.walk(target)]
        empty = isinstance(value, ast.Constant) or (isinstance(value, (ast.List, ast.Tuple)) and not value.elts)
        return not empty and any(isinstance(target, ast.Name) and target.id == name for target in targets)
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr not in PUTTING:
        return False
    return syntax.text_of(value.func.value) == name


def _read_later(file: syntax.File, call: ast.expr, name: str) -> bool:
    again = syntax.read_again(file, call, name)
    if again is not None and not _is_filled(file, again):
        return True
    # Read after the loop that the call stands in, and bound before it.
    loop: ast.AST = call
    for around in file.up(call):
        if isinstance(around, (ast.For, ast.While)):
            loop = around
    if loop is call:
        return False
    bound_inside = any(
        isinstance(n, ast.Name)
        and n.id == name
        and isinstance(n.ctx, ast.Store)
        and not _under_condition(file, n, loop)
        for n in ast.walk(loop)
    )
    end = getattr(loop, "end_lineno", 0)
    function = file.function(call)
    read = any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) and n.lineno > end
        for n in ast.walk(function)
    )
    return read and not bound_inside


def _under_condition(file: syntax.File, node: ast.AST, loop: ast.AST) -> bool:
    for around in file.up(node):
        if around is loop:
            return False
        if isinstance(around, ast.If):
            return True
    return False


# -- attributes -------------------------------------------------------------------------------------


def _kept_in_attribute(name: str, frames: list[FrameType]) -> Line | None:
    """An attribute that a function reads before it fills it anew, or that is filled once and read later."""
    for path in dict.fromkeys(frame_place(frame).path for frame in frames):
        file = syntax.file_of(path)
        if file is None:
            continue
        scopes = [node for node in ast.walk(file.tree) if isinstance(node, Scope)]
        stores = [store for scope in scopes for store in _stores(file, scope, name)]
        if not stores:
            continue
        once = all(_if_unset(file, store, name) for store in stores)
        if any(_carried(file, scope, name, once=once) for scope in scopes):
            statement = file.statement(stores[0])
            return Line(file.place(statement, frame_place(frames[0]))) if statement is not None else None
    return None


def _attributes(scope: ast.AST, name: str) -> Iterator[ast.Attribute]:
    for node in ast.walk(scope):
        if isinstance(node, ast.Attribute) and node.attr == name:
            yield node


def _stores(file: syntax.File, scope: ast.AST, name: str) -> list[ast.Attribute]:
    """`self.kept = …`, `self.kept[name] = …`, `self.kept.append(…)`: whatever fills the attribute."""
    found = []
    for node in _attributes(scope, name):
        bound = isinstance(node.ctx, ast.Store) and not _made_empty(file, node)
        if bound or _is_filled(file, node):
            found.append(node)
    return found


def _is_filled(file: syntax.File, node: ast.expr) -> bool:
    above = file.parents.get(node)
    if isinstance(above, ast.Subscript) and above.value is node:
        return isinstance(above.ctx, ast.Store)
    called = isinstance(above, ast.Attribute) and above.attr in PUTTING
    call = file.parents.get(above) if above is not None and called else None
    return isinstance(call, ast.Call) and call.func is above


def _carried(file: syntax.File, scope: Scope, name: str, *, once: bool) -> bool:
    loads = [node for node in _attributes(scope, name) if isinstance(node.ctx, ast.Load)]
    reads = [node for node in loads if not _only_asked(file, node) and not _is_filled(file, node)]
    stores = [s for s in _stores(file, scope, name) if not _if_unset(file, s, name)]
    if once:
        return bool(reads)
    if not reads or not stores:
        return False
    first = min(stores, key=_position)
    # What stands to the right of the assignment is read before it.
    return any(_position(read) < _position(first) or _same_statement(file, read, first) for read in reads)


def _position(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _same_statement(file: syntax.File, one: ast.expr, other: ast.expr) -> bool:
    return file.statement(one) is file.statement(other)


def _made_empty(file: syntax.File, store: ast.Attribute) -> bool:
    """`self.kept = None`, `self.kept, self.other = None, []`."""
    statement = file.statement(store)
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Tuple) and isinstance(statement, ast.Assign):
        target = statement.targets[0]
        if isinstance(target, ast.Tuple) and store in target.elts and len(target.elts) == len(value.elts):
            value = value.elts[target.elts.index(store)]
    empty = isinstance(value, (ast.List, ast.Tuple)) and not value.elts
    return isinstance(value, ast.Constant) or empty or (isinstance(value, ast.Dict) and not value.keys)


def _if_unset(file: syntax.File, store: ast.expr, name: str) -> bool:
    """Under `if self.kept is None:` or `if not self.kept:`."""
    for around in file.up(store):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if isinstance(around, ast.If) and any(True for _ in _attributes(around.test, name)):
            test = around.test
            negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
            unset = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is)
            return (negated or unset) and any(store in ast.walk(child) for child in around.body)
    return False


def _only_asked(file: syntax.File, node: ast.Attribute) -> bool:
    """`self.kept is not None`, `if self.kept:`."""
    above = file.parents.get(node)
    return isinstance(above, (ast.Compare, ast.UnaryOp, ast.BoolOp, ast.If))
