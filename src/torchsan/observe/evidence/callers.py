"""A value changed in place while a name of a caller, or a second name beside it, still stands for the old one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType, FunctionType
from typing import Any

import torch

from torchsan.model.events import AliasedSnapshot, Event, InputOverwritten, Line, Memory, Sure
from torchsan.observe import expressions as syntax
from torchsan.observe.constructors import constructor_of
from torchsan.observe.evidence.scene import Writing, call_of
from torchsan.observe.holders.classes import is_opened
from torchsan.observe.holders.extents import Extent, extent_of
from torchsan.observe.holders.manner import Manner
from torchsan.observe.holders.reading import Read, next_reads, reads_elsewhere, reads_values
from torchsan.observe.holders.resolving import NOTHING, root_name, value_of
from torchsan.observe.holders.storing import filled_in_this_loop, stored_at
from torchsan.observe.names import local_names
from torchsan.observe.objects import entries_of, is_a, is_tensor, items_of
from torchsan.observe.sites import frame_place
from torchsan.observe.tensors import memory_of

CALLERS = 6
MAX_ITEMS = 256


def events_of(writing: Writing) -> Iterator[Event]:
    """What is to be told if the write changes values; the first is enough."""
    if writing.file is None or writing.node is None or writing.extent is None:
        return
    yield from _second_name(writing)
    yield from _used_for_its_value(writing)
    yield from _callers_tensor(writing)
    yield from _returned_before(writing)
    yield from _kept_before(writing)
    yield from _summed_into_the_first(writing)
    yield from _refilled(writing)
    yield from _through_a_dictionary(writing)


# -- two names in one function ---------------------------------------------------------------------


def _second_name(writing: Writing) -> Iterator[Event]:
    """`old = x; x.add_(1); x - old`: both names are read afterwards as if they were two tensors."""
    frame = writing.top
    names = {n: v for n, v in local_names(frame).items() if is_tensor(v)}
    written = _written_names(writing, names)
    if not written:
        return
    parameters = set(_arguments(frame))
    for handle in sorted(written):
        for other, value in names.items():
            if other in written or value is not names[handle] or other.startswith("_"):
                continue
            if (other in parameters and handle in parameters) or not _plain_alias(writing, other, handle):
                continue
            reads = next_reads(frame, other, after_loops=True)
            if not reads or not _goes_on(writing, handle):
                continue
            newer = handle if other in parameters else other
            taken = _binding(frame, newer)
            yield AliasedSnapshot(
                Memory(other), taken, writing.event, Line(reads[0].place), "alias", handle,
                certainty="possible" if _is_return(reads[0]) and not _value_used(writing) else "proved",
            )  # fmt: skip


def _written_names(writing: Writing, names: dict[str, torch.Tensor]) -> set[str]:
    """The names by which the line reaches what it writes."""
    if isinstance(writing.written, ast.Name):
        return {writing.written.id} & set(names)
    if writing.written is not None:
        return set()
    found = call_of(writing.top)
    passed = [a.id for a in _passed(found[0]) if isinstance(a, ast.Name)] if found is not None else []
    return {n for n in passed if n in names and extent_of(names[n]) == writing.extent}


def _plain_alias(writing: Writing, one: str, other: str) -> bool:
    """Was one of the names bound by nothing but the other, or each by a conversion that had nothing to convert?"""
    file, node = writing.file, writing.node
    assert file is not None
    assert node is not None
    made_of: dict[str, str] = {}
    for name, source in ((one, other), (other, one)):
        found = syntax.binding(file, file.function(node), name, writing.site.place.line)
        if found is None or not isinstance(found[0], (ast.Assign, ast.AnnAssign)):
            continue
        values = [found[1], *(found[1].elts if isinstance(found[1], ast.Tuple) else ())]
        if any(isinstance(value, ast.Name) and value.id == source for value in values):
            return True
        made_of[name] = _converted(found[1])
        if made_of[name] == source:
            return True
    return bool(made_of.get(one)) and made_of.get(one) == made_of.get(other)


def _converted(value: ast.expr) -> str:
    """`x` for `x.float()` or `x.to(device)`; empty for anything else."""
    method = value.func if isinstance(value, ast.Call) else None
    if not isinstance(method, ast.Attribute) or method.attr.endswith("_"):
        return ""
    return method.value.id if isinstance(method.value, ast.Name) else ""


def _goes_on(writing: Writing, handle: str) -> bool:
    """Is the written value read afterwards, by its name or as the value of the expression that wrote it?"""
    return _value_used(writing) or bool(next_reads(writing.top, handle))


def _value_used(writing: Writing) -> bool:
    file, node = writing.file, writing.node
    assert file is not None
    assert node is not None
    if isinstance(node, ast.stmt) or not isinstance(node, ast.Call):
        return False
    return not isinstance(file.parents.get(node), ast.Expr)


def _is_return(read: Read) -> bool:
    return isinstance(read.file.parents.get(read.node), ast.Return)


def _binding(frame: FrameType, name: str) -> Line | None:
    at = frame_place(frame)
    file = syntax.file_of(at.path)
    node = file.at(at) if file else None
    found = syntax.binding(file, file.function(node), name, at.line) if file and node is not None else None
    return Line(file.place(found[0], at)) if file and found else None


# -- an in-place call inside an expression ---------------------------------------------------------


def _used_for_its_value(writing: Writing) -> Iterator[Event]:
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


# -- the caller's tensor ---------------------------------------------------------------------------


def _callers_tensor(writing: Writing) -> Iterator[Event]:
    """A callee changes the value of its argument, and the caller goes on reading the name that it passed."""
    explicit, as_new, sure = writing.written is not None, False, "proved"
    if not writing.tensor.is_floating_point() and not writing.tensor.is_complex():
        return
    memory = memory_of(writing.tensor)
    if explicit:
        if len(writing.frames) < 2 or not _is_argument(memory, writing.top):
            return
        manner = manner_for_caller(writing)
        if not manner.of_the_value:
            if manner is not Manner.ACCUMULATED:
                return
            sure = "possible"
        function = writing.file.function(writing.node) if writing.file and writing.node is not None else None
        as_new = _gets_another_name(writing)
        if function is None or not _is_value_function(function, as_new):
            return
    elif not writing.manner.of_the_value:
        sure = "possible"
    for index in range(1 if explicit else 0, min(len(writing.frames), CALLERS)):
        if index and not _is_argument(memory, writing.frames[index - 1]):
            return
        event = _read_by(writing, writing.frames[index], as_new, sure)
        if event is not None:
            yield event
            return


def manner_for_caller(writing: Writing) -> Manner:
    """Data that a callee makes of the argument itself, or of nothing, is no data of the caller's."""
    manner = writing.manner
    if manner is not Manner.ACCUMULATED or writing.file is None or writing.node is None:
        return manner
    function = writing.file.function(writing.node)
    owned = set(syntax.parameters(function)) - {root_name(writing.written), "self", "cls"}
    operands = _operand_names(writing)
    for _ in range(3):
        bound = [syntax.binding(writing.file, function, n, writing.site.place.line) for n in operands - owned]
        operands |= {n.id for found in bound if found for n in ast.walk(found[1]) if isinstance(n, ast.Name)}
    return manner if operands & owned else Manner.TRANSFORMED


def _operand_names(writing: Writing) -> set[str]:
    node = writing.node
    if isinstance(node, ast.AugAssign):
        parts: list[ast.AST] = [node.value]
    elif isinstance(node, ast.Call):
        parts = [*node.args, *(k.value for k in node.keywords)]
    else:
        parts = []
    return {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}


def _is_value_function(function: syntax.Function, as_new: bool) -> bool:
    """A function that hands back a value, or that uses what it wrote under another name; `fill_` says it fills."""
    if getattr(function, "name", "").endswith("_") and not getattr(function, "name", "").endswith("__"):
        return False
    if as_new or isinstance(function, ast.Lambda):
        return True
    return any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(function))


def _gets_another_name(writing: Writing) -> bool:
    """`y = x.mul_(2)`: the written value goes on under a name of its own."""
    file, node = writing.file, writing.node
    statement = file.statement(node) if file and node is not None else None
    if not isinstance(node, ast.Call) or not isinstance(statement, ast.Assign):
        return False
    bound = {n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return root_name(writing.written) not in bound


def _arguments(frame: FrameType) -> tuple[str, ...]:
    code = frame.f_code
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _is_argument(memory: int | None, frame: FrameType) -> bool:
    values = local_names(frame)
    held = (values.get(name) for name in _arguments(frame))
    return any(is_tensor(v) and memory_of(v) == memory for v in held)


def _passed(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(k.value for k in call.keywords)]


def _read_by(writing: Writing, caller: FrameType, as_new: bool, sure: Any) -> Event | None:
    found = call_of(caller)
    if found is None:
        return None
    call, file, at = found
    memory, values = memory_of(writing.tensor), local_names(caller)
    passed = [
        a.id
        for a in _passed(call)
        if isinstance(a, ast.Name) and is_tensor(values.get(a.id)) and memory_of(values[a.id]) == memory
    ]
    statement = file.statement(call)
    if not passed or statement is None:
        return None
    # A bare call is made for its effect, unless the callee used the written value as a new one.
    if isinstance(statement, ast.Expr) and statement.value is call and not as_new:
        return None
    called = syntax.text_of(call.func)
    if called.endswith("_") and not called.endswith("__"):
        return None
    reads = next_reads(caller, passed[0])
    if not reads:
        return None
    return InputOverwritten(
        Memory(passed[0], shape=tuple(writing.tensor.shape)), writing.event, Line(at), reads[0].place, called,
        constructor_of(writing.frame), sure,
    )  # fmt: skip


# -- a buffer that was handed out ------------------------------------------------------------------


def _returned_before(writing: Writing) -> Iterator[Event]:
    """`a = f(x); b = f(y)`, and `f` returns one buffer: the second call replaces what the first has returned."""
    if writing.extent is None or writing.target is None:
        return
    replaced = writing.manner in (Manner.REPLACED, Manner.FILLED)
    sure: Sure = "proved" if replaced else "possible"
    for caller in writing.frames[1:CALLERS]:
        found = call_of(caller)
        if found is None:
            continue
        passed = {root_name(a) for a in _passed(found[0])} | {root_name(found[0].func)}
        for name, value in local_names(caller).items():
            if name in passed or not any(writing.target.covers(extent) for extent in _extents(value)):
                continue
            reads = next_reads(caller, name, after_loops=True) if _came_from_a_call(caller, name) else []
            if reads:
                yield AliasedSnapshot(
                    Memory(name), _binding(caller, name), writing.event, Line(reads[0].place), "returned",
                    syntax.text_of(found[0].func), certainty=sure,
                )  # fmt: skip


def _summed_into_the_first(writing: Writing) -> Iterator[Event]:
    """`total = losses[0]; total += losses[1]`: the first entry of the list becomes the sum."""
    if not isinstance(writing.written, ast.Name) or writing.manner is not Manner.ACCUMULATED or writing.file is None:
        return
    if not is_tensor(value_of(writing.written, writing.top)):
        return  # `state["mean"].add_(state["step"])`: a record whose parts are changed by one another
    added = {id(value) for value in writing.args[1:] if is_tensor(value)}
    owners = {h.step.owner for h in writing.census.holdings if id(h.value) in added and h.step.kind == "item"}
    for holding in writing.census.holdings:
        if holding.extent != writing.extent or holding.step.kind != "item" or holding.step.owner not in owners:
            continue
        container = holding.step.path.partition("[")[0]
        used = next_reads(writing.top, container, after_loops=True) if container.isidentifier() else []
        if used:
            taken = _binding(writing.top, writing.written.id)
            # The parts of a record (`state["mean"]`) may be meant to be changed by one another.
            yield AliasedSnapshot(
                Memory(writing.written.id), taken, writing.event, Line(used[0].place), "alias", holding.step.path,
                certainty="proved" if type(holding.step.key) is int else "possible",
            )  # fmt: skip


def _refilled(writing: Writing) -> Iterator[Event]:
    """An entry of a container that a loop is filling is replaced by the same loop before the next one is put there."""
    if writing.manner is not Manner.REPLACED or writing.target is None:
        return
    for holding in writing.census.holdings:
        if not writing.target.covers(holding.extent) or is_a(holding.value, torch.nn.Parameter):
            continue
        found = filled_in_this_loop(holding)
        if found is None:
            continue
        root = holding.step.root
        container, frame = root.part, root.frame
        used = next_reads(frame, container, after_loops=True) if frame is not None else []
        if used:
            yield AliasedSnapshot(
                Memory(""), Line(found), writing.event, Line(used[0].place), "list", container, 2,
            )  # fmt: skip
            return


def _through_a_dictionary(writing: Writing) -> Iterator[Event]:
    """`merged[key] += value`, where `merged` is a state dictionary: the model that it belongs to is written."""
    node = writing.written
    if not writing.manner.reads or not isinstance(node, ast.Name) or node.id not in local_names(writing.top):
        return
    held = local_names(writing.top)[node.id]
    if not is_a(held, dict) or not any(item is writing.tensor for _, item in entries_of(held)):
        return
    owner = next((h for h in writing.census.of(writing.target) if is_a(h.value, torch.nn.Parameter)), None)  # type: ignore[arg-type]
    if owner is not None:
        taken = _binding(writing.top, node.id)
        yield AliasedSnapshot(
            Memory(node.id), taken, writing.event, None, "memory", owner.step.path, certainty="possible"
        )


def _extents(value: object) -> list[Extent]:
    """The memory of a tensor, or of the tensors in a plain container."""
    values = [value, *(item for _, item in items_of(value, MAX_ITEMS))]
    tensors = (v for v in values if is_tensor(v) and not is_a(v, torch.nn.Parameter))
    return [extent for tensor in tensors if (extent := extent_of(tensor)) is not None]


def _kept_before(writing: Writing) -> Iterator[Event]:
    """What was put into a container is then rectified or scaled by a layer that works in place."""
    found = call_of(writing.top)
    if writing.written is not None or found is None or writing.manner is not Manner.TRANSFORMED:
        return
    call, file, at = found
    if isinstance(file.parents.get(call), ast.Expr) and constructor_of(writing.frame) is None:
        return
    for holding in writing.census.holdings:
        if holding.step.kind != "item" or holding.extent != writing.extent or is_a(holding.value, torch.nn.Parameter):
            continue
        container = holding.step.path.partition("[")[0]
        scope = file.function(call) if holding.step.root.frame is writing.top and "." not in container else file.tree
        used = reads_elsewhere(file, at, container, scope)
        if used is not None:
            yield AliasedSnapshot(
                Memory(holding.step.path), stored_at(holding.step, writing.frames), writing.event, Line(used), "alias",
                syntax.text_of(call),
            )  # fmt: skip


def _came_from_a_call(frame: FrameType, name: str) -> bool:
    """Was the name bound to what a function of the user's returned or yielded?"""
    at = frame_place(frame)
    file = syntax.file_of(at.path)
    node = file.at(at) if file else None
    found = syntax.binding(file, file.function(node), name, at.line) if file and node is not None else None
    if found is None or not isinstance(found[0], ast.Assign) or not isinstance(found[1], ast.Call):
        return False
    function = found[1].func
    if isinstance(function, ast.Name):
        if function.id == "next":
            return True
        value = value_of(function, frame)
        return value is not NOTHING and _is_callable_of_users(value)
    if isinstance(function, ast.Attribute):
        whole = value_of(function, frame)
        if whole is not NOTHING:
            return _is_callable_of_users(whole)
        owner = value_of(function.value, frame)
        return owner is not NOTHING and not is_tensor(owner) and is_opened(type(owner))
    return False


def _is_callable_of_users(value: object) -> bool:
    return is_a(value, FunctionType) or is_opened(type(value))
