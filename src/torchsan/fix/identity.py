"""When a fault is still the fault of before: the same statement, wherever it stands now, does the same harm."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass

from torchsan.fix.source import Function, Source, line_map, real
from torchsan.model import Finding, Span
from torchsan.model.source import real_path

Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Change:
    """A file before and after an edit."""

    old: Source
    new: Source

    def before(self, span: Span | None) -> Place | None:
        """Where a place of the edited program stood: by its line, or by its statement where that has moved."""
        if span is None:
            return None
        path = real(real_path(span.path))
        if path != self.new.path:
            return path, span.line, 0
        line = line_map(self.old, self.new).get(span.line)
        if line is None:
            line = self._moved_from(span) or -span.line
        return path, line, rank(self.new, span)

    def _moved_from(self, span: Span) -> int | None:
        """The line of a statement that reads the same and that the edited program has no longer where it was."""
        statement = self.new.statement(span)
        if statement is None:
            return None
        shape = ast.dump(statement)
        kept = set(line_map(self.old, self.new).values())
        for node in ast.walk(self.old.tree):
            if isinstance(node, ast.stmt) and node.lineno not in kept and ast.dump(node) == shape:
                return node.lineno + span.line - statement.lineno
        return None

    def is_untouched(self, finding: Finding) -> bool:
        """The finding is about a line that the edit did not write."""
        place = self.before(finding.primary)
        if place is None or place[1] < 0:
            return False
        if place[0] != self.new.path:
            return True
        return self.old.lines[place[1] - 1] == self.new.lines[finding.primary.line - 1]


def rank(source: Source, span: Span) -> int:
    """The how-manieth call of its statement a place is: layers may be made side by side on one line."""
    statement = source.statement(span)
    if statement is None:
        return 0
    begin, _ = source.bounds(span)
    return sum(isinstance(node, ast.Call) and source.start(node) < begin for node in ast.walk(statement))


def place(source: Source | None, span: Span | None) -> Place | None:
    if span is None:
        return None
    path = real(real_path(span.path))
    known = source is not None and source.path == path
    return path, span.line, rank(source, span) if known and source is not None else 0


def is_same(change: Change, target: Finding, found: Finding) -> bool:
    """Same kind of fault, same write, same save, same layer."""
    if found.code != target.code or not is_same_write(change, target, found):
        return False
    roles = ("saved", "aliased")
    return all(change.before(found.span(role)) == place(change.old, target.span(role)) for role in roles)


def is_same_write(change: Change, target: Finding, found: Finding) -> bool:
    """Another consequence of the write that was to be mended; a layer's writes are told apart by its constructor."""
    if change.before(found.primary) != place(change.old, target.primary):
        return False
    now, was = (maker(f) for f in (found, target))
    return now is None or was is None or change.before(now) == place(change.old, was)


def maker(finding: Finding) -> Span | None:
    """The constructor of the layer that writes, where the finding tells it."""
    return finding.span("origin") or (finding.span("cause") if finding.code == "TS204" else None)


def keeps_definitions(old: Source, new: Source) -> bool:
    """No class, function, import or decorator is moved, lost or changed in name; others may have come."""
    rest = iter(_definitions(new))
    if not all(any(same == one for same in rest) for one in _definitions(old)):
        return False
    return not _decorators(old) - _decorators(new)


def _definitions(source: Source) -> list[tuple[str, ...]]:
    found: list[tuple[int, int, tuple[str, ...]]] = []
    for node in ast.walk(source.tree):
        if isinstance(node, Function | ast.ClassDef):
            found.append((node.lineno, node.col_offset, (type(node).__name__, _within(source, node), node.name)))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.append((node.lineno, node.col_offset, ("import", _within(source, node), ast.unparse(node))))
    return [key for _, _, key in sorted(found)]


def _decorators(source: Source) -> Counter[tuple[str, ...]]:
    return Counter(
        (_within(source, node), node.name, ast.unparse(decorator).replace("inference_mode", "no_grad"))
        for node in ast.walk(source.tree)
        if isinstance(node, Function | ast.ClassDef)
        for decorator in node.decorator_list
    )


def _within(source: Source, node: ast.AST) -> str:
    names = [n.name for n in source.above(node) if isinstance(n, Function | ast.ClassDef)]
    return ".".join(reversed(names))
