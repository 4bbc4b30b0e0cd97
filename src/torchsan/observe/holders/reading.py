"""What a frame does next with a name: followed along its bytecode, shown in its source."""

from __future__ import annotations

import ast
import dis
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from torchsan.model import Place
from torchsan.observe import expressions as syntax
from torchsan.observe.sites import frame_place, place_in

# What asks for the form of a tensor and not for its values.
FORM = {
    *("shape", "size", "dim", "ndim", "device", "dtype", "numel", "nelement", "stride", "is_cuda", "requires_grad"),
    *("is_contiguous", "storage_offset", "data_ptr", "element_size", "is_floating_point", "type", "layout", "names"),
    *("nbytes", "itemsize", "strides", "new_zeros", "new_empty", "new_ones", "new_full", "new_tensor"),
}
FORM_FUNCTIONS = {
    *("len", "type", "isinstance", "id", "zeros_like", "empty_like", "ones_like", "full_like", "rand_like"),
    *("randn_like", "is_tensor", "callable", "hasattr"),
}
REPLACED_BY = {"zero_", "fill_", "copy_", "normal_", "uniform_", "random_", "detach_", "requires_grad_", "append"}
_LOADS = ("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_CLOSURE")
_BINDS = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "DELETE_")
# Python 3.13 makes one instruction of two neighbours on a line: STORE_FAST_LOAD_FAST, LOAD_FAST_LOAD_FAST.
_JOINED = re.compile(r"(LOAD_FAST|STORE_FAST)")
_ENDS = {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"}
_ALWAYS = {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE", "JUMP"}


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a name's value, with its node in the source."""

    place: Place
    node: ast.expr
    file: syntax.File


@lru_cache(maxsize=512)
def _instructions(code: CodeType) -> tuple[list[dis.Instruction], dict[int, int]]:
    listed = list(dis.get_instructions(code))
    return listed, {instruction.offset: index for index, instruction in enumerate(listed)}


def next_reads(
    frame: FrameType,
    name: str,
    *,
    loops: bool = False,
    after_loops: bool = False,
    counts: Callable[[Read], bool] = lambda _: True,
) -> list[Read]:
    """Where the frame reads the value of `name` next, before it binds it anew, on any way on from here.

    `loops`: also on the way round a loop that the frame is in. `after_loops`: also behind such a loop.
    `counts`: which reads are looked for; others are passed by.
    """
    beside = _beside(frame, name)
    if beside is not None and counts(beside):
        return [beside]
    code = frame.f_code
    listed, at = _instructions(code)
    start = _after_call(at, frame.f_lasti)
    if _is_augmented(frame, name):
        # `x += 1` binds the name to what it was bound to.
        bound = (i for i in range(start, len(listed)) if _access(listed[i], name).startswith(_BINDS))
        start = next(bound, start) + 1
    # Where to go on, and the instruction behind which a read counts.
    todo, met, found = [(start, -1)], set(), []
    while todo:
        index, floor = todo.pop()
        while 0 <= index < len(listed) and (index, floor) not in met:
            met.add((index, floor))
            instruction = listed[index]
            access = _access(instruction, name)
            if access.startswith(_LOADS) and index > floor:
                read = _read(code, instruction, name)
                if read is not None and counts(read):
                    found.append(read)
                    break
            if access.startswith(_BINDS) or instruction.opname in _ENDS:
                break
            target = at.get(instruction.argval) if _jumps(instruction) else None
            if target is not None and target > index:
                todo.append((target, floor))
            elif target is not None and (loops or after_loops or _in_comprehension(code, listed[target])):
                todo.append((target, floor if loops else max(floor, index)))
            if instruction.opname in _ALWAYS:
                break
            index += 1
    return sorted(found, key=lambda read: (read.place.line, read.place.column))


def _is_augmented(frame: FrameType, name: str) -> bool:
    at = frame_place(frame)
    file = syntax.file_of(at.path)
    node = file.at(at) if file else None
    return isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name


def _after_call(at: dict[int, int], lasti: int) -> int:
    while lasti > 0 and lasti not in at:
        lasti -= 2  # inside the cache of an instruction
    return at.get(lasti, -1) + 1


def _jumps(instruction: dis.Instruction) -> bool:
    return instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs


def _names(instruction: dis.Instruction) -> tuple[str, ...]:
    value = instruction.argval
    if isinstance(value, tuple):
        return tuple(str(part) for part in value)
    return (value,) if isinstance(value, str) else ()


def _access(instruction: dis.Instruction, name: str) -> str:
    """What the instruction does to the name first: the opcode of one of its halves, or nothing."""
    names = _names(instruction)
    halves = _JOINED.findall(instruction.opname) if len(names) > 1 else [instruction.opname]
    return next((half for half, other in zip(halves, names, strict=False) if other == name), "")


def _in_comprehension(code: CodeType, top: dis.Instruction) -> bool:
    """Is this the top of a comprehension's loop? Python 3.12 runs those in the frame around, as no loop of its own."""
    place = place_in(code, top.offset)
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    while file is not None and isinstance(node, (ast.expr, ast.comprehension)):
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)):
            return True
        node = file.parents.get(node)
    return False


def _read(code: CodeType, instruction: dis.Instruction, name: str) -> Read | None:
    """The read that this load is; None when it does not look at values."""
    place = place_in(code, instruction.offset)
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    if file is not None and isinstance(node, ast.Name) and (node.id != name or not isinstance(node.ctx, ast.Load)):
        # Of two that were made one the place is the first one's.
        node = _load_behind(file, node, name)
        place = file.place(node, place) if node is not None else place
    if file is None or not isinstance(node, ast.expr):
        return None
    return Read(place, node, file) if reads_values(node, file) else None


def _load_behind(file: syntax.File, node: ast.Name, name: str) -> ast.Name | None:
    """The next load of the name on the same line."""
    on_line = [
        inner
        for inner in file.within(file.function(node))
        if isinstance(inner, ast.Name) and inner.id == name and isinstance(inner.ctx, ast.Load)
        if inner.lineno == node.lineno
    ]
    # A comprehension binds its variable on the right of where it reads it.
    return min(on_line, key=lambda inner: (inner.col_offset < node.col_offset, inner.col_offset), default=None)


def reads_values(node: ast.expr, file: syntax.File) -> bool:
    """Is the value looked at, not only the form, the identity or the place for a new value?"""
    parent = file.parents.get(node)
    if isinstance(parent, ast.Attribute):
        call = file.parents.get(parent)
        replaced = parent.attr in REPLACED_BY and isinstance(call, ast.Call) and call.func is parent
        return parent.attr not in FORM and not replaced and isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.Subscript) and parent.value is node and not isinstance(parent.ctx, ast.Load):
        return isinstance(file.parents.get(parent), ast.AugAssign)
    if isinstance(parent, ast.Call) and parent.func is not node:
        return syntax.text_of(parent.func).rpartition(".")[2] not in FORM_FUNCTIONS
    if isinstance(parent, ast.keyword):
        return parent.arg != "out"
    if isinstance(parent, ast.Compare):
        return not any(isinstance(op, (ast.Is, ast.IsNot)) for op in parent.ops)
    return not isinstance(parent, ast.Delete)


def reads_entry(read: Read, key: int, length: int) -> bool:
    """Does a read of a sequence look at this entry: not `x[1:]` for the first, nor a loop that overwrites each?"""
    parent = read.file.parents.get(read.node)
    if isinstance(parent, ast.For) and parent.iter is read.node and isinstance(parent.target, ast.Name):
        inner = (node for statement in parent.body for node in ast.walk(statement))
        uses = [n for n in inner if isinstance(n, ast.Name) and n.id == parent.target.id]
        return any(reads_values(use, read.file) for use in uses)
    if not isinstance(parent, ast.Subscript) or parent.value is not read.node:
        return True
    at = parent.slice
    try:
        if isinstance(at, ast.Slice):
            ends: list[Any] = [part and ast.literal_eval(part) for part in (at.lower, at.upper, at.step)]
            return key in range(length)[slice(*ends)]
        return bool(range(length)[ast.literal_eval(at)] == key)
    except (ValueError, TypeError, IndexError):
        return True  # not known before it runs


def reads_key(read: Read, key: str) -> bool:
    """May a read of a dictionary look at what it has under this key? `state["step"]` does not at `state["mean"]`."""
    parent = read.file.parents.get(read.node)
    at = parent.slice if isinstance(parent, ast.Subscript) and parent.value is read.node else None
    return not isinstance(at, ast.Constant) or bool(at.value == key)


def _beside(frame: FrameType, name: str) -> Read | None:
    """A read in the statement that runs, which takes its value after the call."""
    at = frame_place(frame)
    file = syntax.file_of(at.path)
    node = file.at(at) if file else None
    statement = file.statement(node) if file and node is not None else None
    if file is None or statement is None or not isinstance(node, ast.expr):
        return None
    read = syntax.read_beside(file, statement, node, name) or _later_in(file, statement, node, name)
    if read is None or not reads_values(read, file):
        return None
    return Read(file.place(read, at), read, file)


def _later_in(file: syntax.File, statement: ast.stmt, call: ast.expr, name: str) -> ast.expr | None:
    """`c` in `return o * c.tanh_(), c`: looked up after the call."""
    if not isinstance(statement, (ast.Return, ast.Assign, ast.Expr)):
        return None
    inside = set(ast.walk(call))
    for node in ast.walk(statement):
        if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load) or node in inside:
            continue
        later = (node.lineno, node.col_offset) > (call.end_lineno or 0, call.end_col_offset or 0)
        if later and not _perhaps(file, node, statement, call):
            return node
    return None


def _perhaps(file: syntax.File, node: ast.AST, statement: ast.stmt, call: ast.expr) -> bool:
    """Is this reached on some ways only, as `x` in `f(x) if fast else g(x)`, other than the call that has run?"""
    for parent in file.up(node):
        if parent is statement:
            return False
        if isinstance(parent, (ast.IfExp, ast.BoolOp, ast.Lambda)):
            arm = next(child for child in ast.iter_child_nodes(parent) if node in set(ast.walk(child)))
            if call not in set(ast.walk(arm)):
                return True
    return False


def reads_elsewhere(file: syntax.File, like: Place, dotted: str, scope: ast.AST) -> Place | None:
    """Where this part of the file looks into what `name` or `x.name` holds, other than to put something there."""
    name = dotted.rpartition(".")[2]
    for node in file.within(scope):
        if not isinstance(node, ast.Attribute if "." in dotted else ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        called = node.attr if isinstance(node, ast.Attribute) else node.id
        if called == name and _looks_inside(node, file):
            return file.place(node, like)
    return None


def _looks_inside(node: ast.expr, file: syntax.File) -> bool:
    parent = file.parents.get(node)
    if isinstance(parent, ast.Attribute):
        return parent.attr not in ("append", "clear", "extend", "insert", "add", "update", "setdefault", "popleft")
    if isinstance(parent, ast.Subscript) and parent.value is node:
        return isinstance(parent.ctx, ast.Load) or isinstance(file.parents.get(parent), ast.AugAssign)
    if isinstance(parent, ast.Call) and parent.func is not node:
        return syntax.text_of(parent.func) not in ("len", "isinstance", "id", "type", "bool")
    return not isinstance(parent, (ast.Delete, ast.Expr))
