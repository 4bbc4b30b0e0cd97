"""A callee changes its argument, and its caller goes on reading what it has passed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torchsan.model import Place
from torchsan.model.events import Event, InputOverwritten, Line, Memory
from torchsan.observe import expressions as syntax
from torchsan.observe.constructors import constructor_of
from torchsan.observe.evidence.scene import Writing, call_of
from torchsan.observe.holders.dotted import read_behind
from torchsan.observe.holders.extents import extent_of, holds_arrays
from torchsan.observe.holders.manner import Manner
from torchsan.observe.holders.reading import next_reads
from torchsan.observe.holders.resolving import root_name, value_of
from torchsan.observe.names import local_names
from torchsan.observe.objects import is_tensor
from torchsan.observe.tensors import memory_of

CALLERS = 6


def callers_tensor(writing: Writing) -> Iterator[Event]:
    """A callee changes the value of its argument, and the caller goes on reading the name that it passed."""
    explicit, as_new, sure = writing.written is not None, False, "proved"
    if not writing.tensor.is_floating_point() and not writing.tensor.is_complex():
        return
    if explicit:
        if len(writing.frames) < 2 or not _is_argument(writing, writing.top):
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
        if index and not _is_argument(writing, writing.frames[index - 1]):
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


def arguments_of(frame: FrameType) -> tuple[str, ...]:
    code = frame.f_code
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _is_argument(writing: Writing, frame: FrameType) -> bool:
    values = local_names(frame)
    return any(_has_memory(values.get(name), writing) for name in arguments_of(frame))


def passed_to(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(k.value for k in call.keywords)]


def _read_by(writing: Writing, caller: FrameType, as_new: bool, sure: Any) -> Event | None:
    found = call_of(caller)
    if found is None:
        return None
    call, file, at = found
    passed = next((a for a in passed_to(call) if _has_memory(value_of(a, caller), writing)), None)
    statement = file.statement(call)
    if passed is None or statement is None:
        return None
    # A bare call is made for its effect, unless the callee used the written value as a new one.
    if isinstance(statement, ast.Expr) and statement.value is call and not as_new:
        return None
    called = syntax.text_of(call.func)
    if called.endswith("_") and not called.endswith("__"):
        return None
    if isinstance(passed, ast.Name):
        reads = next_reads(caller, passed.id)
        each = None if reads or not writing.seen else _given_to_each(file, call, passed)
        read = reads[0].place if reads else file.place(passed, at) if each is not None else None
        if isinstance(each, ast.For):
            sure = "possible"  # it may be what moves on from one to the next
    else:
        read = _read_behind(file, call, passed, at)
        if root_name(passed) in ("self", "cls"):
            sure = "possible"  # how an object moves its state on
    if read is None:
        return None
    return InputOverwritten(
        Memory(ast.unparse(passed), shape=tuple(writing.tensor.shape)), writing.event, Line(at), read, called,
        constructor_of(writing.frame), sure,
    )  # fmt: skip


def _given_to_each(file: syntax.File, call: ast.Call, passed: ast.Name) -> ast.AST | None:
    """`[member(x) for member in members]`: the loop that gives one value to several, each of which changes it."""
    called, statement = root_name(call.func), file.statement(call)
    if isinstance(statement, ast.Assign) and any(syntax.binds_target(one, passed.id) for one in statement.targets):
        return None  # `x = step(x)`: the next one is given what this one has returned
    for around in file.up(call):
        if isinstance(around, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            targets = [generator.target for generator in around.generators]
        elif isinstance(around, ast.For):
            targets = [around.target]
        elif isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        else:
            continue
        if any(syntax.binds_target(target, passed.id) for target in targets):
            return None
        if any(syntax.binds_target(target, called) for target in targets):
            return around
    return None


def _has_memory(value: Any, writing: Writing) -> bool:
    """A tensor of the same storage, or an array of which the written tensor was made."""
    if is_tensor(value):
        return memory_of(value) == memory_of(writing.tensor)
    extent = extent_of(value) if holds_arrays(type(value)) else None
    return extent is not None and writing.extent is not None and extent.meets(writing.extent)


def _read_behind(file: syntax.File, call: ast.Call, passed: ast.expr, at: Place) -> Place | None:
    """`batch["image"]` is read again in a statement behind the call, which does not bind it anew itself."""
    text, statement = ast.unparse(passed), file.statement(call)
    if isinstance(statement, ast.Assign) and any(ast.unparse(target) == text for target in statement.targets):
        return None
    found = read_behind(file, call, text)
    return file.place(found, at) if found is not None else None
