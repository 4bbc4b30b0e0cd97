"""Does a function go on with a model that a variable leads to: does it run it, or hand it to functions of its own?

Models are held by variables, by attributes, and in lists of objects; names of entries (`for member in members`) and
functions of the program that a list is handed to are followed for a few turns.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

import torch

from torchsan.observe import expressions as syntax
from torchsan.observe.holders.classes import of_the_user
from torchsan.observe.made_from import value_of
from torchsan.observe.names import variables
from torchsan.observe.objects import attribute_of, attributes_of, class_attribute, is_a, is_exactly, is_tensor, items_of
from torchsan.observe.sites import USER, frame_place, kind_of

MAX_OBJECTS, MAX_DEPTH, MAX_ENTRIES = 2_000, 5, 32
TURNS, ROUNDS, DECORATORS = 3, 3, 8
_PASSING_ON = ("sorted", "list", "tuple", "reversed", "min", "max", "next", "iter", "enumerate", "zip")
_ENTRIES = ("values", "items", "get", "pop", "copy", "choice", "sample")


@dataclass(frozen=True, slots=True)
class Way:
    """`self.teams[0].members[1].net` by its parts: the holder, attributes between entries, and what an entry has."""

    path: str
    holder: str  # `self.teams`
    many: bool = False  # entries of a container are on the way
    between: frozenset[str] = frozenset()  # `members`
    leaf: str = ""  # `.net`
    owner: type = object  # of the object that has the model as an attribute

    def attribute(self, name: str, owner: object) -> Way:
        if not self.many:
            return Way(f"{self.path}.{name}", f"{self.holder}.{name}", owner=type(owner))
        return replace(self, path=f"{self.path}.{name}", leaf=f"{self.leaf}.{name}", owner=type(owner))

    def entry(self, subscript: str) -> Way:
        between = self.between | {part for part in self.leaf.split(".") if part}
        return replace(self, path=self.path + subscript, many=True, between=between, leaf="", owner=object)


def models_of(frame: FrameType) -> Iterator[tuple[Way, torch.nn.Module]]:
    """Models that the variables of a frame lead to, through containers and objects of the program's own classes."""
    queue = deque((Way(name, name), value, 0) for name, value in variables([frame]))
    met: set[int] = set()
    while queue and len(met) < MAX_OBJECTS:
        way, value, depth = queue.popleft()
        if is_a(value, torch.nn.Module):
            if id(value) not in met:
                yield way, value
        elif id(value) not in met and depth < MAX_DEPTH:
            below: list[tuple[Way, Any]] = []
            if is_exactly(value, (list, tuple, dict)):
                below = [(way.entry(key), item) for key, item in items_of(value)[:MAX_ENTRIES]]
            elif not is_tensor(value) and of_the_user(type(value)):
                below = [(way.attribute(name, value), item) for name, item in attributes_of(value).items()]
            queue.extend((further, item, depth + 1) for further, item in below)
        else:
            continue
        met.add(id(value))


def goes_on_with(way: Way, frame: FrameType) -> tuple[bool, bool]:
    """Below the line at which a frame stands: is the model run or handed to a function of the program's own; named?"""
    place = frame_place(frame)
    file = syntax.file_of(place.path)
    at = file.at(place) if file else None
    statement = file.statement(at) if file and at is not None else None
    if file is None or statement is None:
        return False, False
    scope = _Scope(file, file.function(statement), getattr(statement, "end_lineno", 0), frame, frame.f_globals)
    return scope.look(way, TURNS, set())


@dataclass(slots=True)
class _Scope:
    """A function, below a line of it."""

    file: syntax.File
    function: ast.AST
    after: int
    frame: FrameType | None
    names: Mapping[str, Any]
    owner: type = object  # the class of `self`, where there is no frame to ask

    def look(self, way: Way, turns: int, met: set[CodeType]) -> tuple[bool, bool]:
        leads = _Leads(way, self.file.within(self.function))
        used = read = False
        for node in self.file.within(self.function):
            if not isinstance(node, (ast.Name, ast.Attribute, ast.Call)) or node.lineno <= self.after:
                continue
            if isinstance(node, ast.Call):
                used = used or (turns > 0 and self._inside(node, way, leads, turns - 1, met))
                continue
            is_model = leads.is_model(node)
            read = read or is_model or (way.many and leads.to(node))
            used = used or (is_model and self._is_handed_on(node))
        return used, read or used

    def _is_handed_on(self, node: ast.AST) -> bool:
        above = self.file.parents.get(node)
        above = self.file.parents.get(above) if isinstance(above, (ast.keyword, ast.Starred)) else above
        return isinstance(above, ast.Call) and (above.func is node or self._called(above.func) is not None)

    def _inside(self, call: ast.Call, way: Way, leads: _Leads, turns: int, met: set[CodeType]) -> bool:
        """Is a function called that goes on with the model, having been handed what leads to it?"""
        for function, further in self._ways_in(call, way, leads):
            file = syntax.file_of(function.__code__.co_filename)
            node = file.definition(function.__code__) if file is not None else None
            if file is None or node is None or function.__code__ in met:
                continue
            met.add(function.__code__)
            scope = _Scope(file, node, 0, None, function.__globals__, further.owner)
            if scope.look(further, turns, met)[0]:
                return True
        return False

    def _ways_in(self, call: ast.Call, way: Way, leads: _Leads) -> Iterator[tuple[FunctionType, Way]]:
        function = self._called(call.func)
        if function is not None:
            code = function.__code__
            names = list(code.co_varnames[: code.co_argcount])
            bound = 1 if isinstance(call.func, ast.Attribute) and names[:1] == ["self"] else 0
            handed = [*zip(names[bound:], call.args, strict=False)]
            for name, given in [*handed, *((k.arg, k.value) for k in call.keywords if k.arg)]:
                if way.many and leads.to(given) and not leads.is_model(given):
                    yield function, replace(way, holder=name)
            if bound and isinstance(call.func, ast.Attribute):
                above = ast.unparse(call.func.value)
                if way.holder.startswith(f"{above}."):
                    owner = self.owner if self.frame is None else type(value_of(call.func.value, self.frame))
                    yield function, replace(way, holder="self" + way.holder.removeprefix(above), owner=owner)
        if way.many and way.leaf and isinstance(call.func, ast.Attribute) and leads.to(call.func.value):
            method = _plain(class_attribute(way.owner, call.func.attr))
            if method is not None:  # of the object that has the model
                yield method, Way("", f"self{way.leaf}", owner=way.owner)

    def _called(self, function: ast.expr) -> FunctionType | None:
        """The function or method of the program's own that is called, under whatever decorators."""
        if self.frame is not None:
            called = value_of(function, self.frame)
            if called is None and isinstance(function, ast.Attribute):
                called = class_attribute(type(value_of(function.value, self.frame)), function.attr)
            return _plain(called)
        if isinstance(function, ast.Attribute):
            of_self = isinstance(function.value, ast.Name) and function.value.id == "self"
            return _plain(class_attribute(self.owner, function.attr)) if of_self else None
        return _plain(self.names.get(function.id)) if isinstance(function, ast.Name) else None


class _Leads:
    """The names that lead to the model in one function: of its holder, and of entries taken from that."""

    def __init__(self, way: Way, nodes: list[ast.AST]) -> None:
        self.way = way
        self._names = {way.holder}
        for _ in range(ROUNDS):
            before = len(self._names)
            for node in nodes:
                for target, value in _bindings(node):
                    if self.to(value):
                        self._names.update(ast.unparse(part) for part in _targets(target))
            if len(self._names) == before:
                return

    def to(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self._names
        if isinstance(node, ast.Attribute):
            return ast.unparse(node) in self._names or (node.attr in self.way.between and self.to(node.value))
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self.to(node.value)
        if isinstance(node, (ast.Tuple, ast.List)):
            return any(map(self.to, node.elts))
        if isinstance(node, ast.IfExp):
            return self.to(node.body) or self.to(node.orelse)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self.to(node.elt)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in _ENTRIES and self.to(node.func.value):
                return True
            passes_on = ast.unparse(node.func).rpartition(".")[2] in (*_PASSING_ON, *_ENTRIES)
            return passes_on and any(map(self.to, node.args))
        return False

    def is_model(self, node: ast.AST) -> bool:
        if not self.way.leaf:
            return self.to(node) and not (self.way.many and ast.unparse(node) == self.way.holder)
        for part in reversed(self.way.leaf.split(".")[1:]):
            if not isinstance(node, ast.Attribute) or node.attr != part:
                return False
            node = node.value
        return self.to(node)


def _bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, (ast.For, ast.comprehension)):
        yield from _pairs(node.target, node.iter)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Which part of a target gets which part of a value, where that can be told."""
    if isinstance(target, ast.Tuple):
        called = ast.unparse(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
        if called in ("enumerate", "items"):
            yield target.elts[-1], value
            return
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
        if isinstance(value, ast.Call) and called == "zip":
            parts = value.args
        if len(parts) == len(target.elts):
            yield from zip(target.elts, parts, strict=True)
            return
    yield target, value


def _targets(target: ast.expr) -> Iterator[ast.expr]:
    """Names and attributes that are bound; to put something into a container binds no name."""
    if isinstance(target, (ast.Name, ast.Attribute)):
        yield target
    elif isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _targets(part)


def _plain(called: Any) -> FunctionType | None:
    if is_exactly(called, (staticmethod, classmethod, MethodType)):
        called = called.__func__
    for _ in range(DECORATORS):
        inner = attribute_of(called, "__wrapped__")
        if inner is None:
            break
        called = inner
    return called if is_a(called, FunctionType) and kind_of(called.__code__) == USER else None
