"""Where a run came to, told in the nodes of a file; and which parts of a file an edit wrote."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from torchsan.fix.source import Function, Source
from torchsan.fix.trial import Ran

# Statements that have no instruction of their own, or one that stands for something else.
SILENT = (ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Nonlocal, ast.Try, ast.FunctionDef, ast.AsyncFunctionDef)
Range = tuple[int, int]


@dataclass(frozen=True)
class Came:
    """One file and what of it was executed."""

    source: Source
    ran: Ran

    @cached_property
    def _places(self) -> list[Range]:
        found = self.ran.get(self.source.path, set())
        return sorted((self.source.offset(a, b), self.source.offset(c, d)) for a, b, c, d in found)

    def to(self, start: int, end: int) -> bool:
        """Was anything executed that lies between these characters?"""
        return any(start <= begin and stop <= end for begin, stop in self._places)

    def to_node(self, node: ast.AST) -> bool:
        return self.to(*self.own(node))

    def own(self, node: ast.AST) -> Range:
        """A statement without the statements inside it."""
        body = getattr(node, "body", None)
        start = self.source.start(node)
        if isinstance(node, ast.stmt) and isinstance(body, list) and body:
            return start, max(start, self.source.start(body[0]))
        return start, self.source.end(node)

    @cached_property
    def missed(self) -> list[ast.stmt]:
        """Statements that the run did not come to."""
        return [node for node in self.statements() if not self.to_node(node)]

    def statements(self) -> Iterator[ast.stmt]:
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.stmt) and not isinstance(node, (*SILENT, ast.ClassDef)) and not _is_text(node):
                yield node

    def not_run_in(self, region: Range) -> ast.AST | None:
        """A statement, or a part of one that a condition decides about, that an edit wrote and that did not run."""
        for statement in self.statements():
            if _meets(self.own(statement), region) and not self.to_node(statement):
                return statement
        for node in ast.walk(self.source.tree):
            for part, last in _conditional(node):
                if self._stays(node, part):
                    continue
                bounds = (self.source.start(part), self.source.end(last))
                if (
                    _meets(bounds, region)
                    and not (part is last and isinstance(part, ast.Constant))
                    and not self.to(*bounds)
                ):
                    return part
        return None

    def _stays(self, choice: ast.AST, part: ast.expr) -> bool:
        """`x = … if x is None else x`: on that side nothing is done."""
        around = self.source.parents.get(choice)
        targets = around.targets if isinstance(around, ast.Assign) and around.value is choice else []
        return isinstance(part, ast.Name) and any(isinstance(t, ast.Name) and t.id == part.id for t in targets)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _conditional(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """Parts of an expression that are not computed each time the whole is, from their first node to their last.

    A key and its value are computed together; a key that is but a name may have no instruction of its own.
    """
    if isinstance(node, ast.DictComp):
        return [(node.key, node.value)]
    parts: list[ast.expr] = []
    if isinstance(node, ast.IfExp):
        parts = [node.body, node.orelse]
    elif isinstance(node, ast.BoolOp):
        parts = node.values[1:]
    elif isinstance(node, ast.Lambda):
        parts = [node.body]
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        parts = [node.elt]
    return [(part, part) for part in parts]


def _meets(one: Range, other: Range) -> bool:
    if other[0] == other[1]:
        return one[0] <= other[0] < one[1]
    return one[0] < other[1] and other[0] < one[1]


def regions(old: Source, new: Source) -> list[tuple[Range, Range]]:
    """What differs: characters of the old file, and those of the new one in their place."""
    matcher = difflib.SequenceMatcher(None, old.lines, new.lines, autojunk=False)
    found = []
    for kind, a, a_end, b, b_end in matcher.get_opcodes():
        if kind == "equal":
            continue
        before, after = "".join(old.lines[a:a_end]), "".join(new.lines[b:b_end])
        head = _shared(before, after)
        tail = _shared(before[head:][::-1], after[head:][::-1])
        was, now = old.line_start(a + 1), new.line_start(b + 1)
        found.append(((was + head, was + len(before) - tail), (now + head, now + len(after) - tail)))
    return found


def _shared(a: str, b: str) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def innermost(source: Source, region: Range) -> ast.stmt | None:
    """The statement in which a region begins: of whole lines, the first on them and not what is around them."""
    at = region[0]
    while source.text[at : at + 1] in (" ", "\t"):
        at += 1
    spans = [n for n in ast.walk(source.tree) if isinstance(n, ast.stmt) and source.start(n) <= at]
    return max((n for n in spans if at < source.end(n)), key=source.start, default=None)


def scope(source: Source, node: ast.AST) -> Function | ast.ClassDef | None:
    """The function around a node, else the class."""
    above = [n for n in source.above(node) if isinstance(n, Function | ast.ClassDef)]
    return next((n for n in above if isinstance(n, Function)), above[0] if above else None)
