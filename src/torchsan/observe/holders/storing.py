"""The line that put memory into a slot, found in the source of whoever owns the slot."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from types import FrameType, ModuleType

from torchsan.model import Place
from torchsan.model.events import Line
from torchsan.model.source import shown_path
from torchsan.observe import expressions as syntax
from torchsan.observe.holders.classes import bases_of
from torchsan.observe.holders.extents import Extent, extent_of
from torchsan.observe.holders.resolving import value_of
from torchsan.observe.holders.slots import Holding, Step
from torchsan.observe.objects import attribute_of, class_members, is_exactly
from torchsan.observe.sites import USER, frame_place, kind_of_path

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
    scopes += [scope for scope in homes_of(step) if all(scope[0] is not known for known, _, _ in scopes)]
    into = parts[0].kind == "item"
    key = parts[parts.index(named) - 1].key if into else None
    attribute = named.above is not None and named.kind != "default"
    for file, scope, near in scopes:
        found = _put_into(file, scope, name, key, near) if into else None
        if found is None and (bound or not into):
            found = _bound_to(file, scope, name, near, attribute=attribute)
        if found is not None:
            return Line(found)
    return None


def handed_on_at(expression: ast.expr, frames: list[FrameType]) -> Line | None:
    """Where a name or an attribute was given what had a name already: `self.best = score`, `old = self.x.detach()`."""
    if not isinstance(expression, (ast.Name, ast.Attribute)) or not frames:
        return None
    place = frame_place(frames[0])
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    if file is None or node is None:
        return None
    scope, found = file.function(node) if isinstance(expression, ast.Name) else file.tree, None
    for statement in file.within(scope):
        if not isinstance(statement, ast.Assign) or not any(_is_same(one, expression) for one in statement.targets):
            continue
        if isinstance(syntax.receiver(statement.value), (ast.Name, ast.Attribute)):
            found = statement
    return Line(file.place(found, place)) if found is not None else None


def _is_same(target: ast.expr, expression: ast.expr) -> bool:
    if isinstance(target, ast.Name) and isinstance(expression, ast.Name):
        return target.id == expression.id
    return (
        isinstance(target, ast.Attribute) and isinstance(expression, ast.Attribute) and target.attr == expression.attr
    )


def filled_in_this_loop(holding: Holding) -> Place | None:
    """Where a loop that the holder's frame is in puts this very memory into a container of its own."""
    first, root = [*holding.step.up()][-2:] if holding.step.above is not None else (None, holding.step)
    frame = root.frame
    if first is None or first.kind != "item" or frame is None or root.kind != "local":
        return None
    at = frame_place(frame)
    file = syntax.file_of(at.path)
    node = file.at(at) if file else None
    if file is None or node is None:
        return None
    for around in file.up(node):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        if isinstance(around, (ast.For, ast.While)):
            for put in _puts(file, around, root.part, first.key):
                if _has_memory(_what_is_put(put), holding.extent, frame):
                    return file.place(put, at)
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


def homes_of(step: Step) -> Iterator[tuple[syntax.File, ast.AST, Place]]:
    """The files that define the classes of the objects on the way, which no frame of theirs may be running."""
    for home in _homes(step):
        path = attribute_of(home, "__file__")
        file = syntax.file_of(path) if type(path) is str and kind_of_path(path) == USER else None
        if file is not None:
            yield file, file.tree, Place(shown_path(path), len(file.lines), 0, 0, 0, "")


def _homes(step: Step) -> Iterator[object]:
    for one in step.up():
        owner = one.witness() if one.kind == "attribute" and one.witness is not None else None
        for cls in bases_of(type(owner)) if owner is not None else ():
            yield sys.modules.get(str(class_members(cls).get("__module__")))
    root = step.root
    if root.kind == "global":  # when the program has ended no frame of its module runs
        modules = [module for module in list(sys.modules.values()) if type(module) is ModuleType]
        yield next((module for module in modules if id(vars(module)) == root.owner), None)


def _put_into(file: syntax.File, scope: ast.AST, name: str, key: object, near: Place) -> Place | None:
    """The last statement that may have filled this slot of the container."""
    found = list(_puts(file, scope, name, key))
    before = [node for node in found if node.lineno <= near.line]
    return file.place((before or found)[-1], near) if found else None


def _puts(file: syntax.File, scope: ast.AST, name: str, key: object) -> Iterator[ast.Call | ast.Assign]:
    """`name.append(x)`, `name[k] = x`: what may put memory under this key.

    `name[k] += x` keeps what was there, and a number is no memory.
    """
    for node in file.within(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PUTTING:
            if not _names(node.func.value, name):
                continue
            if node.func.attr == "setdefault" and node.args and _is_another(node.args[0], key):
                continue
            yield node
        elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and _names(target.value, name):
                    if not _is_another(_outermost(target).slice, key):
                        yield node
                    break


def _outermost(target: ast.Subscript) -> ast.Subscript:
    """`name[a]` of `name[a][b]`."""
    while isinstance(target.value, ast.Subscript):
        target = target.value
    return target


def _is_another(shown: ast.expr, key: object) -> bool:
    """A constant that is not the key of the slot."""
    return isinstance(shown, ast.Constant) and is_exactly(key, (str, int)) and shown.value != key


def _what_is_put(node: ast.Call | ast.Assign) -> list[ast.expr]:
    return [node.value] if isinstance(node, ast.Assign) else [*node.args, *(k.value for k in node.keywords)]


def _has_memory(expressions: list[ast.expr], memory: Extent, frame: FrameType) -> bool:
    """Is some part of what is put, as the frame has it now, of this memory?"""
    for expression in expressions:
        for part in ast.walk(expression):
            if isinstance(part, (ast.Name, ast.Attribute, ast.Subscript)):
                found = extent_of(value_of(part, frame))
                if found is not None and found.meets(memory):
                    return True
    return False


def _bound_to(file: syntax.File, scope: ast.AST, name: str, near: Place, *, attribute: bool) -> Place | None:
    found: list[ast.stmt] = []
    for node in file.within(scope):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AnnAssign, ast.For)):
            targets = [node.target]
        else:
            continue
        value = None if isinstance(node, ast.For) else node.value
        for target in targets:
            for one, bound in _pairs(target, value):
                # A constant is no memory.
                known = not isinstance(bound, ast.Constant) and isinstance(one, ast.Attribute) == attribute
                if known and _names(one, name):
                    found.append(node)
    before = [node for node in found if node.lineno <= near.line]
    chosen = before or found
    return file.place(max(chosen, key=lambda n: n.lineno) if before else chosen[0], near) if chosen else None


def _pairs(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Each name that is bound, with what it is bound to where that stands beside it."""
    if isinstance(target, (ast.Tuple, ast.List)):
        values = list(value.elts) if isinstance(value, (ast.Tuple, ast.List)) else []
        for number, element in enumerate(target.elts):
            beside = values[number] if len(values) == len(target.elts) else None
            yield from _pairs(element, beside)
    else:
        yield target, value


def _names(node: ast.AST, name: str) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)
