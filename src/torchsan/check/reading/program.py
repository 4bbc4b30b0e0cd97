"""A parsed file: what its names mean, its functions and classes."""

from __future__ import annotations

import ast
import os
import re
from dataclasses import dataclass, field
from functools import cached_property

from torchsan.model import Place
from torchsan.model.source import real_path

_FREEZES = re.compile(r"requires_grad(?:_\(|\s*=)\s*(?:False|mode|flag|not |self|requires)|\bfreeze")
_OTHER_ARRAYS = re.compile(r"\b(?:import|from) (?:numpy|jax|tensorflow|cupy|pandas|paddle|mxnet|PIL|cv2)\b")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_KERNELS = frozenset({"kernel", "jit", "njit", "func", "vectorize", "guvectorize"})
_BUILDERS = ("append", "extend", "add_module", "insert")
# The usual abbreviations resolve through imports; these modules re-export one another.
_SAME = {
    "torch.nn.modules": "torch.nn",
    "torch.autograd.function": "torch.autograd",
    "torch.nn.parameter": "torch.nn",
}


# Containers of packages that are torch's own under another roof.
_CONTAINERS = {
    f"{package}.{name}": f"torch.nn.{name}"
    for package in ("mmcv.runner", "mmengine.model", "mmcv.cnn", "fairscale.nn")
    for name in ("ModuleList", "Sequential", "ModuleDict")
}


@dataclass(eq=False)
class FunctionInfo:
    name: str
    node: FunctionNode
    owner: ClassInfo | None = None
    decorators: tuple[str, ...] = ()
    may_yield: bool = False
    program: Program | None = None

    @cached_property
    def elsewhere(self) -> bool:
        """Whether a decorator makes another language of it: `@ti.kernel`, `@triton.jit`."""
        return any(d.rpartition(".")[2] in _KERNELS and not d.startswith("torch.") for d in self.decorators)

    @cached_property
    def returns(self) -> bool:
        """Whether it hands back a value."""
        return isinstance(self.node, ast.Lambda) or any(
            isinstance(n, ast.Return) and n.value is not None for n in ast.walk(self.node)
        )

    @cached_property
    def abstract(self) -> bool:
        """Whether its body is left to a class below."""
        last = None if isinstance(self.node, ast.Lambda) else self.node.body[-1]
        return isinstance(last, ast.Raise) and "NotImplemented" in ast.unparse(last)

    @cached_property
    def generator(self) -> bool:
        return self.may_yield and not isinstance(self.node, ast.Lambda) and _yields(self.node)


@dataclass(eq=False)
class ClassInfo:
    name: str
    node: ast.ClassDef
    bases: tuple[str, ...]
    methods: dict[str, FunctionInfo] = field(default_factory=dict)
    program: Program | None = None
    # What was found out about its bases.
    module: bool | None = None

    @cached_property
    def built_up(self) -> frozenset[str]:
        """Attributes whose value takes more than one expression: lists that are appended to, local names."""
        local: set[str] = set()
        found: set[str] = set()
        for node in self._start:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    local |= _local_names(target)
            elif isinstance(node, ast.For | ast.AsyncFor | ast.AugAssign | ast.AnnAssign):
                local |= _local_names(node.target)
                if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute):
                    # `self.layers += [layer]`
                    found.add(node.target.attr)
            elif isinstance(node, ast.With | ast.AsyncWith):
                for item in node.items:
                    local |= _local_names(item.optional_vars)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                called = node.value.func
                builds = isinstance(called, ast.Attribute) and called.attr in _BUILDERS
                if builds and isinstance(called.value, ast.Attribute):  # type: ignore[attr-defined]
                    found.add(called.value.attr)  # type: ignore[attr-defined]
        found |= self.changed
        for name, value in self.assigned.items() if local else ():
            if any(isinstance(n, ast.Name) and n.id in local for n in ast.walk(value)):
                found.add(name)
        return frozenset(found)

    @cached_property
    def changed(self) -> set[str]:
        """Attributes that `__init__` gives a value made of the one before, or switches gradients off for."""
        found: set[str] = set()
        for node in self._start:
            if not isinstance(node, ast.Assign):
                continue
            for target in node.targets:
                if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                    same = ast.unparse(target)
                    if any(isinstance(n, ast.Attribute) and ast.unparse(n) == same for n in ast.walk(node.value)):
                        found.add(target.attr)
        return found

    @cached_property
    def assigned(self) -> dict[str, ast.expr]:
        """What `__init__` gives to each attribute; the last thing that is not None."""
        found: dict[str, ast.expr] = {}
        for node in self._start:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    _note_assigned(found, target, node.value)
            elif isinstance(node, ast.AnnAssign):
                if node.value is not None:
                    _note_assigned(found, node.target, node.value)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                call = node.value
                if isinstance(call.func, ast.Attribute) and call.func.attr == "register_buffer" and len(call.args) > 1:
                    name = call.args[0]
                    if isinstance(name, ast.Constant):
                        found[str(name.value)] = call
        return found

    def settled(self, name: str) -> ast.expr | None:
        """What an attribute surely is after `__init__`; None where that hangs on one of its branches."""
        given = [n for n in self._start if isinstance(n, ast.Assign) and any(_is_own(t, name) for t in n.targets)]
        in_test = {id(n) for t in self._start if isinstance(t, ast.If) and asks_version(t) for n in t.body}
        if not given or (len(given) > 1 and id(given[-1]) not in in_test):
            return None
        return (
            None if name in self.built_up or (len(given) == 1 and self.conditions(given[-1].value)) else given[-1].value
        )

    def conditions(self, value: ast.expr) -> list[tuple[ast.expr, bool]]:
        """The tests of `__init__` under which it assigns this very value, each with its answer."""
        start = self.methods.get("__init__")
        return [] if start is None or isinstance(start.node, ast.Lambda) else _tests(start.node.body, value) or []

    @cached_property
    def assigned_later(self) -> dict[str, ast.expr]:
        """What attributes get from methods other than `__init__`: those that get a value in one place only."""
        found: dict[str, ast.expr] = {}
        several: set[str] = set()
        for name, method in self.methods.items():
            if name == "__init__" or isinstance(method.node, ast.Lambda):
                continue
            for node in _statements(method.node.body):
                made: dict[str, ast.expr] = {}
                for target in node.targets if isinstance(node, ast.Assign) else ():
                    _note_assigned(made, target, node.value)  # type: ignore[attr-defined]
                made = {k: v for k, v in made.items() if not isinstance(v, ast.Constant)}
                several |= made.keys() & found.keys()
                found.update(made)
        return {k: v for k, v in found.items() if k not in several and isinstance(v, ast.Call)}

    @cached_property
    def _start(self) -> list[ast.stmt]:
        """The statements of `__init__`, also those in its blocks."""
        start = self.methods.get("__init__")
        return [] if start is None or isinstance(start.node, ast.Lambda) else _statements(start.node.body)


class Program:
    """One file's tree with helpers that turn nodes into places and dotted names."""

    def __init__(self, path: str, text: str, tree: ast.Module, first_line: int = 1) -> None:
        self.path = path
        self.text = text
        self.tree = tree
        self.first_line = first_line
        self._words: dict[ast.AST, str] = {}
        self._classes: dict[ast.ClassDef, ClassInfo] = {}
        self._functions: dict[FunctionNode, FunctionInfo] = {}

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def top_level(self) -> dict[str, ast.stmt]:
        """Functions, classes and constants by name."""
        found: dict[str, ast.stmt] = {}
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                found[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(
                node.value, ast.Constant | ast.Tuple | ast.UnaryOp | ast.Attribute | ast.Name
            ):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        found[target.id] = node
        return found

    @cached_property
    def has_generators(self) -> bool:
        return "yield" in self.text

    @cached_property
    def freezes(self) -> bool:
        """Whether gradients are switched off for some parameter, somewhere in the file."""
        return _FREEZES.search(self.text) is not None

    @cached_property
    def only_torch(self) -> bool:
        """Whether what looks like an array is a tensor: nothing else that has shapes is imported."""
        return "torch" in self.text and not _OTHER_ARRAYS.search(self.text)

    @cached_property
    def imports(self) -> dict[str, str]:
        """Local name to dotted name, for every import anywhere in the file."""
        found: dict[str, str] = {}
        for node in _imports(self.tree.body):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        found[alias.asname] = alias.name
                    else:
                        found[alias.name.partition(".")[0]] = alias.name.partition(".")[0]
            else:
                module = self.module_of(node)
                for alias in node.names:
                    if module:
                        found[alias.asname or alias.name] = f"{module}.{alias.name}"
        return found

    @cached_property
    def starred(self) -> list[str]:
        """Modules all of whose names are imported."""
        found = [n for n in _imports(self.tree.body) if isinstance(n, ast.ImportFrom)]
        return [self.module_of(n) for n in found if any(a.name == "*" for a in n.names)]

    def module_of(self, node: ast.ImportFrom) -> str:
        """The dotted name of the module that `from … import` reads, also of a relative one."""
        if not node.level:
            return node.module or ""
        parts = self.package.split(".") if self.package else []
        parts = parts[: len(parts) - node.level + 1]
        return ".".join([*parts, *([node.module] if node.module else [])])

    @cached_property
    def package(self) -> str:
        """The dotted name of the package that the file is in."""
        folder = os.path.dirname(os.path.abspath(real_path(self.path)))
        names: list[str] = []
        while os.path.isfile(os.path.join(folder, "__init__.py")):
            folder, name = os.path.split(folder)
            names.append(name)
        return ".".join(reversed(names))

    def definition(self, name: str) -> ast.stmt | None:
        """A function, class or constant of the file."""
        return self.top_level.get(name)

    def reassigned(self, function: str) -> frozenset[str]:
        """Names that functions of this name give another value."""
        found = {n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef) and n.name == function}
        names = {n.id for f in found for n in ast.walk(f) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        written = {
            n.target.id
            for f in found
            for n in ast.walk(f)
            if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
        }
        return frozenset(names - written)

    def words(self, node: ast.AST) -> str:
        """The source of an expression; loops and paths ask for the same ones again and again."""
        known = self._words.get(node)
        if known is None:
            known = self._words[node] = ast.unparse(node)
        return known

    def dotted(self, node: ast.AST) -> str:
        """`F.relu` as `torch.nn.functional.relu`; empty for what is no chain of names."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.imports.get(node.id, node.id))
        return canonical(".".join(reversed(parts)))

    def place(self, node: ast.AST, function: str = "") -> Place:
        home = getattr(node, "home", None)
        if home is not None and home is not self:
            place: Place = home.place(node, function)
            return place
        line, end = getattr(node, "lineno", 1), getattr(node, "end_lineno", None) or 1
        return Place(
            self.path,
            line,
            self._column(line, getattr(node, "col_offset", 0)) + 1,
            end,
            self._column(end, getattr(node, "end_col_offset", 0) or 0) + 1,
            function,
        )

    def _column(self, line: int, offset: int) -> int:
        """ast counts bytes of UTF-8, people count characters."""
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return offset if text.isascii() else len(text.encode()[:offset].decode(errors="replace"))

    def function(self, node: FunctionNode, owner: ClassInfo | None = None) -> FunctionInfo:
        known = self._functions.get(node)
        if known is None:
            known = self._functions[node] = self._new_function(node, owner)
        return known

    def _new_function(self, node: FunctionNode, owner: ClassInfo | None) -> FunctionInfo:
        if isinstance(node, ast.Lambda):
            return FunctionInfo("<lambda>", node, owner, program=self)
        names = tuple(self.dotted(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list)
        return FunctionInfo(node.name, node, owner, names, self.has_generators, self)

    def class_info(self, node: ast.ClassDef) -> ClassInfo:
        known = self._classes.get(node)
        if known is not None:
            return known
        info = self._classes[node] = ClassInfo(node.name, node, tuple(self.dotted(base) for base in node.bases))
        info.program = self
        for item in node.body:
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                info.methods[item.name] = self.function(item, info)
        return info


def asks_version(node: ast.stmt) -> bool:
    """Whether an `if` asks for something that older versions do not have: the one at hand has it."""
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "hasattr"


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements and those inside them, but not those of functions and classes defined there."""
    found: list[ast.stmt] = []
    for node in body:
        found.append(node)
        if isinstance(node, ast.If | ast.For | ast.While | ast.AsyncFor):
            found += _statements(node.body) + ([] if asks_version(node) else _statements(node.orelse))
        elif isinstance(node, ast.With | ast.AsyncWith):
            found += _statements(node.body)
        elif isinstance(node, ast.Try):
            found += _statements(node.body) + _statements(node.orelse) + _statements(node.finalbody)
    return found


def _tests(body: list[ast.stmt], value: ast.expr) -> list[tuple[ast.expr, bool]] | None:
    """The tests around the statement that assigns a value; None when it is not in the body."""
    for node in body:
        if getattr(node, "value", None) is value:
            return []
        for part in ("body", "orelse", "finalbody"):
            found = _tests(getattr(node, part, None) or [], value)
            if found is not None:
                return [(node.test, part == "body"), *found] if isinstance(node, ast.If) else found
    return None


def _local_names(target: ast.expr | None) -> set[str]:
    if isinstance(target, ast.Name):
        return {target.id}
    if isinstance(target, ast.Tuple | ast.List):
        return {name for item in target.elts for name in _local_names(item)}
    return set()


def _is_own(target: ast.expr, name: str) -> bool:
    own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    return own and target.attr == name  # type: ignore[attr-defined]


def _note_assigned(found: dict[str, ast.expr], target: ast.expr, value: ast.expr) -> None:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, item in zip(target.elts, value.elts, strict=True):
            _note_assigned(found, one, item)
    elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
        empty = isinstance(value, ast.Constant) and value.value is None
        if not empty or target.attr not in found:
            found[target.attr] = value


def canonical(name: str) -> str:
    if name in _CONTAINERS:
        return _CONTAINERS[name]
    for long, short in _SAME.items():
        if name.startswith(long + "."):
            # torch.nn.modules.activation.ReLU is torch.nn.ReLU
            return f"{short}.{name.rpartition('.')[2]}"
    return name


def _imports(body: list[ast.stmt]) -> list[ast.Import | ast.ImportFrom]:
    """Imports at the top, and inside the `if` and `try` blocks there."""
    found: list[ast.Import | ast.ImportFrom] = []
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        elif isinstance(node, ast.If):
            found += _imports(node.body) + _imports(node.orelse)
        elif isinstance(node, ast.Try):
            found += _imports(node.body)
    return found


def _yields(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    pending: list[ast.AST] = list(node.body)
    while pending:
        item = pending.pop()
        if isinstance(item, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            pending.extend(ast.iter_child_nodes(item))
    return False
