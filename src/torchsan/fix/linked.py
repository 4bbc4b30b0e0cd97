"""Which definitions a piece of code can get to by the names in it."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from torchsan.fix.source import Function, Source

Definition = tuple[Source, ast.AST]


class Links:
    """The names of all files of the program, and what they stand for."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self.sources = list(sources)
        self._known: dict[str, list[Definition]] = {}
        for source in self.sources:
            for node in ast.walk(source.tree):
                for name in _defined(source, node):
                    self._known.setdefault(name, []).append((source, node))

    def reached(self, seeds: Iterable[Definition]) -> list[Definition]:
        """The seeds, what they name, what that names, and so on."""
        found: dict[int, Definition] = {}
        todo = list(seeds)
        while todo:
            source, node = todo.pop()
            if id(node) not in found:
                found[id(node)] = (source, node)
                todo += [one for name in names(node) for one in self._known.get(name, [])]
        return list(found.values())

    def naming(self, wanted: set[str]) -> list[Definition]:
        """Statements that say one of these names, with all branches of the choice that they are part of."""
        found = []
        for source in self.sources:
            for node in ast.walk(source.tree):
                said = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
                statement = source.statement_of(node) if said in wanted else None
                if statement is not None:
                    found.append((source, _choice(source, statement)))
        return found


def _choice(source: Source, statement: ast.stmt) -> ast.AST:
    whole: ast.AST = statement
    for node in source.above(statement):
        if not isinstance(node, (ast.If, ast.Match, ast.match_case)):
            break
        whole = node
    return whole


def _defined(source: Source, node: ast.AST) -> list[str]:
    """Names under which a node can be found from elsewhere: definitions, and what modules and classes hold."""
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        outer = source.function_of(node) is None
        return [
            target.id if isinstance(target, ast.Name) else target.attr
            for target in targets
            if isinstance(target, ast.Attribute) or (isinstance(target, ast.Name) and outer)
        ]
    return []


def names(node: ast.AST) -> set[str]:
    found = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            found.add(inner.id)
        elif isinstance(inner, ast.Attribute):
            found.add(inner.attr)
    return found
