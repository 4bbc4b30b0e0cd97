"""The line that put memory into a slot, found in the source of whoever owns the slot."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from types import FrameType

from torchsan.model import Place
from torchsan.model.events import Line
from torchsan.observe import expressions as syntax
from torchsan.observe.holders.census import Step
from torchsan.observe.sites import frame_place

PUTTING = ("append", "insert", "add", "appendleft", "extend", "update", "setdefault", "put", "push")


def stored_at(step: Step, frames: list[FrameType], *, bound: bool = True) -> Line | None:
    """The statement that filled the slot, as far as names lead to one.

    `bound`: where no statement puts something into a container, the one that bound its name will do.
    """
    parts = list(step.up())
    named = next((one for one in parts if one.kind not in ("item", "young")), None)
    if named is None:
        return Line(frame_place(frames[1])) if len(frames) > 1 and step.kind == "young" else None
    # A default is told as `function(name)`.
    name = named.part.strip(".()") if named.above is not None else named.part
    holder = named.frame or (step.root.frame if named.above is None else None)
    scopes = list(_scopes(frames, holder if named.above is None else None))
    into = parts[0].kind == "item"
    attribute = named.above is not None and named.kind != "default"
    for file, scope, near in scopes:
        found = _put_into(file, scope, name, near) if into else None
        if found is None and (bound or not into):
            found = _bound_to(file, scope, name, near, attribute=attribute)
        if found is not None:
            return Line(found)
    return None


def filled_in_this_loop(name: str, frame: FrameType) -> Place | None:
    """Where a loop that the frame is in puts something into the container of this name."""
    at = frame_place(frame)
    file = syntax.file_of(at.path)
    node = file.at(at) if file else None
    if file is None or node is None:
        return None
    for around in file.up(node):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        if isinstance(around, (ast.For, ast.While)):
            found = _put_into(file, around, name, at)
            if found is not None:
                return found
    return None


def _scopes(frames: Iterable[FrameType], holder: FrameType | None) -> Iterator[tuple[syntax.File, ast.AST, Place]]:
    """Where to look: the function of the frame that holds the name, else the files of the stack."""
    met: set[str] = set()
    if holder is not None:
        place = frame_place(holder)
        file = syntax.file_of(place.path)
        node = file.at(place) if file else None
        if file is not None:
            yield file, (file.function(node) if node is not None else file.tree), place
    for frame in frames:
        place = frame_place(frame)
        file = syntax.file_of(place.path)
        if file is not None and place.path not in met:
            met.add(place.path)
            yield file, file.tree, place


def _put_into(file: syntax.File, scope: ast.AST, name: str, near: Place) -> Place | None:
    """`name.append(x)`, `name[k] = x`, `name += [x]`; the last of them."""
    found: list[ast.expr | ast.stmt] = []
    for node in file.within(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PUTTING:
            if _names(node.func.value, name):
                found.append(node)
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Subscript) and _names(target.value, name):
                    found.append(node)
    before = [node for node in found if node.lineno <= near.line]
    return file.place((before or found)[-1], near) if found else None


def _bound_to(file: syntax.File, scope: ast.AST, name: str, near: Place, *, attribute: bool) -> Place | None:
    found: list[ast.stmt] = []
    for node in file.within(scope):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AnnAssign, ast.For)):
            targets = [node.target]
        else:
            continue
        for target in targets:
            if any(_names(one, name) and isinstance(one, ast.Attribute) == attribute for one in _targets(target)):
                found.append(node)
    before = [node for node in found if node.lineno <= near.line]
    chosen = before or found
    return file.place(max(chosen, key=lambda n: n.lineno) if before else chosen[0], near) if chosen else None


def _targets(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _targets(element)
    else:
        yield target


def _names(node: ast.AST, name: str) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)
