"""From a running frame to the user's line, its columns and what the value there is used for."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from types import FrameType, TracebackType
from typing import Literal

import torch

from torchsan.model import Place
from torchsan.model.source import real_path, shown_path, source_line, source_lines

Use = Literal["branch", "loop", "rows", "number", "array"]

_TORCH = os.path.dirname(torch.__file__) + os.sep
# Wrappers that torch puts around a dispatch mode.
_TORCH_PLUMBING = tuple(
    os.path.join(_TORCH, *part)
    for part in (("_dynamo",), ("_compile.py",), ("utils", "_python_dispatch.py"), ("_ops.py",))
)
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = os.path.dirname(os.__file__) + os.sep
# Where arrays are computed, as torch computes tensors: a size that `np.prod` reads was read by the line that calls it.
_NUMPY = tuple(
    folder + os.sep for folder in getattr(importlib.util.find_spec("numpy"), "submodule_search_locations", None) or ()
)


@lru_cache(maxsize=4096)
def is_users(path: str) -> bool:
    """Not torch, NumPy, us or the standard library; other installed packages count as the user's program."""
    if path.startswith("<") and not path.startswith(("<ipython", "<stdin")):
        return False
    if path.startswith((_TORCH, _OURS, *_NUMPY)):
        return False
    return not path.startswith(_LIBRARY) or "site-packages" in path


def frames(start: FrameType | None) -> Iterator[FrameType]:
    while start is not None:
        yield start
        start = start.f_back


def place_of(frame: FrameType, lasti: int | None = None, line: int | None = None) -> Place:
    code = frame.f_code
    at = frame.f_lasti if lasti is None else lasti
    number, end, column, end_column = next(
        islice(code.co_positions(), max(at, 0) // 2, None), (line or frame.f_lineno, None, None, None)
    )
    number = number or line or frame.f_lineno
    return Place(
        path=shown_path(code.co_filename),
        line=number,
        column=(column or 0) + 1,
        end_line=end or number,
        end_column=(end_column or column or 0) + 1,
        function=code.co_qualname,
    )


def user_places(limit: int = 6) -> list[Place]:
    """The user's lines that led here, the deepest first."""
    found: list[Place] = []
    entered = False
    for frame in frames(sys._getframe(1)):
        path = frame.f_code.co_filename
        if path.startswith(_OURS):
            if entered:
                # We called the model: what lies above is not part of it.
                break
            continue
        entered = True
        if is_users(path):
            found.append(place_of(frame))
            if len(found) >= limit:
                break
    return found


def called_by_torch() -> bool:
    """Whether the line that runs now is in torch's own Python rather than in the user's."""
    for frame in frames(sys._getframe(1)):
        path = frame.f_code.co_filename
        if not path.startswith(_OURS) and not path.startswith(_TORCH_PLUMBING):
            return path.startswith(_TORCH)
    return False


def calling_place() -> Place | None:
    """The line outside torchsan that called us: where things are shown that have no line of their own."""
    for frame in frames(sys._getframe(1)):
        if not frame.f_code.co_filename.startswith(_OURS) and is_users(frame.f_code.co_filename):
            return place_of(frame)
    return None


def raised_places(error: BaseException, *, below_torch: bool = False) -> list[Place]:
    """The user's lines through which an error came, the deepest first; or only those that torch called."""
    found: list[Place] = []
    tb: TracebackType | None = error.__traceback__
    while tb is not None:
        path = tb.tb_frame.f_code.co_filename
        below_torch = below_torch and not path.startswith(_TORCH)
        if is_users(path) and not below_torch:
            found.append(place_of(tb.tb_frame, tb.tb_lasti, tb.tb_lineno))
        tb = tb.tb_next
    return found[::-1]


def text_of(place: Place) -> str:
    """The source at a place, on one line."""
    line = source_line(place.path, place.line)
    if place.end_line == place.line and place.end_column > place.column:
        # Columns count bytes in code objects.
        return line.encode()[place.column - 1 : place.end_column - 1].decode(errors="replace").strip()
    return line.strip()


@lru_cache(maxsize=64)
def _tree(path: str, stamp: float) -> ast.Module | None:
    try:
        return ast.parse("".join(source_lines(path)))
    except (SyntaxError, ValueError):
        return None


def tree_of(path: str) -> ast.Module | None:
    full = real_path(path)
    return _tree(path, os.path.getmtime(full) if os.path.exists(full) else 0.0)


def _contains(node: ast.AST, place: Place) -> bool:
    first = getattr(node, "lineno", None)
    if first is None:
        return False
    start, end = (first, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
    return bool(start <= (place.line, place.column - 1) and (place.end_line, place.end_column - 1) <= end)


def _path_to(tree: ast.AST, place: Place) -> list[tuple[ast.AST, str]]:
    """Nodes from the module down to the place, each with the field through which it was entered."""
    path: list[tuple[ast.AST, str]] = [(tree, "")]
    while True:
        node = path[-1][0]
        for name, value in ast.iter_fields(node):
            children = value if isinstance(value, list) else [value]
            inner = next((c for c in children if isinstance(c, ast.AST) and _holds(c, place)), None)
            if inner is not None:
                path.append((inner, name))
                break
        else:
            return path


def _holds(node: ast.AST, place: Place) -> bool:
    if isinstance(node, ast.comprehension):
        return any(_contains(n, place) for n in [node.iter, *node.ifs])
    return _contains(node, place)


def _direct_use(path: list[tuple[ast.AST, str]]) -> Use | None:
    for (parent, _), (_, entered) in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
        if isinstance(parent, ast.While) and entered == "test":
            return "loop"
        if isinstance(parent, ast.If | ast.IfExp | ast.Assert) and entered == "test":
            return "branch"
        if isinstance(parent, ast.For | ast.AsyncFor | ast.comprehension) and entered == "iter":
            return "loop"
        if isinstance(parent, ast.comprehension) and entered == "ifs":
            return "branch"
        if isinstance(parent, ast.stmt):
            return None
    return None


def _assigned(path: list[tuple[ast.AST, str]]) -> set[str]:
    statement = next((node for node, _ in reversed(path) if isinstance(node, ast.stmt)), None)
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return set()


def _uses_of(names: set[str], function: ast.AST) -> Use | None:
    found: set[Use] = set()
    for node in ast.walk(function):
        tests: list[tuple[ast.AST, Use]] = []
        if isinstance(node, ast.For | ast.comprehension):
            tests = [(node.iter, "loop")]
        elif isinstance(node, ast.While):
            tests = [(node.test, "loop")]
        elif isinstance(node, ast.If | ast.IfExp):
            tests = [(node.test, "branch")]
        for test, use in tests:
            if any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(test)):
                found.add(use)
    return "loop" if "loop" in found else "branch" if "branch" in found else None


def statement_at(place: Place) -> ast.stmt | None:
    """The innermost statement around a place."""
    tree = tree_of(place.path)
    if tree is None:
        return None
    return next((node for node, _ in reversed(_path_to(tree, place)) if isinstance(node, ast.stmt)), None)


def call_at(place: Place) -> ast.Call | None:
    """The innermost call around a place."""
    tree = tree_of(place.path)
    if tree is None:
        return None
    return next((node for node, _ in reversed(_path_to(tree, place)) if isinstance(node, ast.Call)), None)


def is_count(place: Place) -> bool:
    """Whether the value made at a place is how often a loop goes round: `range(n)`, or the `n` in it."""
    tree = tree_of(place.path)
    inner = [node for node, _ in _path_to(tree, place)[-2:]] if tree is not None else []
    ranges = [node for node in inner if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range"]
    return bool(ranges) and len(ranges[0].args) == 1 and (ranges[0] is inner[-1] or inner[-1] in ranges[0].args)


def use_at(place: Place) -> Use | None:
    """What a Python value made at a place steers: a loop, a branch, or nothing that can be seen."""
    tree = tree_of(place.path)
    if tree is None:
        return None
    path = _path_to(tree, place)
    direct = _direct_use(path)
    if direct:
        return direct
    function = next((n for n, _ in reversed(path) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)), None)
    names = _assigned(path)
    return _uses_of(names, function) if function is not None and names else None
