"""A parsed file: what its names mean, its functions and classes."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property

from torchsan.model import Place

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

# The usual abbreviations resolve through imports; these modules re-export one another.
_SAME = {
    "torch.nn.modules": "torch.nn",
    "torch.autograd.function": "torch.autograd",
    "torch.nn.parameter": "torch.nn",
}


@dataclass(eq=False)
class FunctionInfo:
    name: str
    node: FunctionNode
    owner: ClassInfo | None = None
    decorators: tuple[str, ...] = ()
    may_yield: bool = False

    @cached_property
    def generator(self) -> bool:
        return self.may_yield and not isinstance(self.node, ast.Lambda) and _yields(self.node)


@dataclass(eq=False)
class ClassInfo:
    name: str
    node: ast.ClassDef
    bases: tuple[str, ...]
    methods: dict[str, FunctionInfo] = field(default_factory=dict)

    @cached_property
    def built_up(self) -> frozenset[str]:
        """Attributes whose value takes more than one expression: lists that are appended to, local names."""
        start = self.methods.get("__init__")
        if start is None:
            return frozenset()
        nodes = list(ast.walk(start.node))
        local = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        found = {
            n.func.value.attr
            for n in nodes
            if isinstance(n, ast.Call)
            and isinstance(n.func, ast.Attribute)
            and n.func.attr in ("append", "extend", "add_module", "insert")
            and isinstance(n.func.value, ast.Attribute)
        }
        for name, value in self.assigned.items():
            if any(isinstance(n, ast.Name) and n.id in local for n in ast.walk(value)):
                found.add(name)
        return frozenset(found)

    @cached_property
    def assigned(self) -> dict[str, ast.expr]:
        """What `__init__` gives to each attribute; the last thing that is not None."""
        found: dict[str, ast.expr] = {}
        start = self.methods.get("__init__")
        for node in ast.walk(start.node) if start is not None else ():
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    _note_assigned(found, target, node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) > 1:
                name = node.args[0]
                if node.func.attr == "register_buffer" and isinstance(name, ast.Constant):
                    found[str(name.value)] = node
        return found


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
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.Tuple | ast.UnaryOp):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        found[target.id] = node
        return found

    @cached_property
    def has_generators(self) -> bool:
        return "yield" in self.text

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
            elif node.module and not node.level:
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return found

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
            return FunctionInfo("<lambda>", node, owner)
        names = tuple(self.dotted(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list)
        return FunctionInfo(node.name, node, owner, names, self.has_generators)

    def class_info(self, node: ast.ClassDef) -> ClassInfo:
        known = self._classes.get(node)
        if known is not None:
            return known
        info = self._classes[node] = ClassInfo(node.name, node, tuple(self.dotted(base) for base in node.bases))
        for item in node.body:
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                info.methods[item.name] = self.function(item, info)
        return info


def _note_assigned(found: dict[str, ast.expr], target: ast.expr, value: ast.expr) -> None:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, item in zip(target.elts, value.elts, strict=True):
            _note_assigned(found, one, item)
    elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
        empty = isinstance(value, ast.Constant) and value.value is None
        if not empty or target.attr not in found:
            found[target.attr] = value


def canonical(name: str) -> str:
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
