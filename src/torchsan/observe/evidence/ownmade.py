"""Is what a line adds to some memory made of that memory itself and of numbers, and who asked for it?"""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any

import torch.utils.data

from torchsan.observe import expressions as syntax
from torchsan.observe.evidence.scene import Writing
from torchsan.observe.holders.extents import extent_of, holds_arrays
from torchsan.observe.holders.resolving import NOTHING, root_name, value_of
from torchsan.observe.objects import is_exactly, is_tensor
from torchsan.observe.sites import USER, kind_of_path

MAX_BINDINGS = 8
MAX_FRAMES = 16
_STREAMS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_DATA = os.path.dirname(torch.utils.data.__file__) + os.sep


def is_fetched(frame: FrameType) -> bool:
    """Is this function at work for who asks by a number: torch's data loading, or `data[i]`? A stream may move on."""
    at: FrameType | None = frame
    for _ in range(MAX_FRAMES):
        if at is None or at.f_code.co_flags & _STREAMS:
            return False
        if at.f_code.co_filename.startswith(_DATA) or _answers_an_index(at):
            return True
        at = at.f_back
    return False


def _answers_an_index(frame: FrameType) -> bool:
    return frame.f_code.co_name == "__getitem__" and kind_of_path(frame.f_code.co_filename) == USER


def numbers(writing: Writing) -> tuple[object, ...] | None:
    """The numbers that go into the operands, which are made of the written memory and of nothing else; else None."""
    file, node = writing.file, writing.node
    todo = list(_operands(node))
    if file is None or not todo or writing.site.library is not None:
        return None
    found: list[object] = []
    for _ in range(MAX_BINDINGS):
        if not todo:
            return tuple(found)
        for leaf in list(_leaves(todo.pop())):
            value = leaf.value if isinstance(leaf, ast.Constant) else value_of(leaf, writing.top)
            if is_exactly(value, (int, float, complex, bool, str, type(None), slice, type(...))):
                found.append(value)
            elif is_tensor(value) or holds_arrays(type(value)):
                if _has_its_memory(value, writing):
                    continue
                bound = _bound(leaf, writing)
                if bound is None:
                    return None
                todo.append(bound)
            elif not _is_familiar(leaf, value, writing):
                return None
    return None


def is_made_of_itself(writing: Writing) -> bool:
    """Was what the line puts there computed from what was there, as far as names tell?"""
    file, node, written = writing.file, writing.node, writing.written
    if file is None or node is None or written is None or writing.site.library is not None:
        return False
    own, function = ast.unparse(written), file.function(node)
    todo = list(_operands(node))
    statement = file.statement(node)
    if isinstance(node, ast.Subscript) and isinstance(statement, ast.Assign):
        todo.append(statement.value)
    met: set[str] = set()
    for _ in range(MAX_BINDINGS):
        if not todo:
            return False
        for part in ast.walk(todo.pop()):
            if not isinstance(part, (ast.Name, ast.Attribute)):
                continue
            if ast.unparse(part) == own:
                return True
            if isinstance(part, ast.Name) and part.id not in met:
                met.add(part.id)
                found = syntax.binding(file, function, part.id, writing.site.place.line)
                if found is not None and isinstance(found[0], (ast.Assign, ast.AnnAssign)):
                    todo.append(found[1])
    return False


def _operands(node: ast.AST | None) -> Iterator[ast.expr]:
    if isinstance(node, ast.AugAssign):
        yield node.value
    elif isinstance(node, ast.Call):
        yield from (*node.args, *(k.value for k in node.keywords))


def _leaves(node: ast.expr) -> Iterator[ast.expr]:
    """Names, dotted names and constants that an expression is made of; of a call also what is called."""
    if isinstance(node, (ast.Name, ast.Constant)):
        yield node
    elif isinstance(node, ast.Attribute):
        if isinstance(node.value, (ast.Name, ast.Attribute)):
            yield node
        else:
            yield from _leaves(node.value)
    else:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.keyword):
                yield from _leaves(child.value)
            elif isinstance(child, ast.expr):
                yield from _leaves(child)
            elif isinstance(child, (ast.comprehension, ast.arguments)):
                yield ast.Name("", ast.Load())  # names of its own: left alone


def _has_its_memory(value: Any, writing: Writing) -> bool:
    """Is it the stretch that the written name stands for, or a part of it?"""
    own = value_of(writing.written, writing.top)
    whole, part = extent_of(own), extent_of(value)
    return whole is not None and part is not None and whole.covers(part)


def _bound(leaf: ast.expr, writing: Writing) -> ast.expr | None:
    """What a local name was bound to by this function."""
    if not isinstance(leaf, ast.Name) or writing.file is None or writing.node is None:
        return None
    function = writing.file.function(writing.node)
    if leaf.id in syntax.parameters(function):
        return None
    found = syntax.binding(writing.file, function, leaf.id, writing.site.place.line)
    return found[1] if found is not None and isinstance(found[0], (ast.Assign, ast.AnnAssign)) else None


def _is_familiar(leaf: ast.expr, value: Any, writing: Writing) -> bool:
    """A function of a library, or a method of the written memory."""
    if value is not NOTHING:
        return type(value) is ModuleType
    root = value_of(ast.Name(root_name(leaf), ast.Load()), writing.top)
    if is_tensor(root) or holds_arrays(type(root)):
        return _has_its_memory(root, writing)
    path = vars(root).get("__file__") if type(root) is ModuleType else None
    return type(path) is str and kind_of_path(path) != USER
