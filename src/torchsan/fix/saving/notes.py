"""What the measured run itself has noted, as edits: small views to copy (TS502), graphs retained for nobody (TS504)."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Sources
from torchsan.fix.saving.advice import Idea, imported_names, shown
from torchsan.fix.source import Edit, Source
from torchsan.model import Finding

# Values of one line that may be the small view.
MOST = 3


def noted(findings: Iterable[Finding], sources: Sources) -> Iterator[Idea]:
    for finding in findings:
        source = sources.get(finding.primary.path)
        call = source.expression(finding.primary) if source is not None else None
        if source is None or not isinstance(call, ast.expr):
            continue
        if finding.code == "TS502":
            yield from list(_copied(source, call))[:MOST]
        elif finding.code == "TS504" and isinstance(call, ast.Call):
            yield from _let_go(source, call)


def _copied(source: Source, saving: ast.expr) -> Iterator[Idea]:
    """The op saves one of its operands; a copy of the view has a memory of its own, and its gradient goes through."""
    for value in _operands(source, saving):
        end = source.end(value)
        title = f"a copy of {shown(source, value)}, line {value.lineno}"
        yield Idea("copy small views", title, source, (Edit(end, end, ".clone()"),))


def _operands(source: Source, saving: ast.expr) -> list[ast.expr]:
    """Innermost first: where a line has several calls, the first that computes gets the view."""
    found: list[ast.expr] = []
    for node in ast.walk(saving):
        given: list[ast.expr] = []
        if isinstance(node, ast.Call):
            receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            given = [*receiver, *node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.BinOp):
            given = [node.left, node.right]
        found += [one for one in given if isinstance(one, (ast.Subscript, ast.Call, ast.Name))]
    imported = imported_names(source)
    found = [one for one in found if not (isinstance(one, ast.Name) and one.id in imported)]
    return sorted(found, key=lambda one: (not isinstance(one, ast.Subscript), -one.col_offset))


def _let_go(source: Source, backward: ast.Call) -> Iterator[Idea]:
    left = [keyword for keyword in backward.keywords if keyword.arg != "retain_graph"]
    if len(left) == len(backward.keywords):
        return
    given = [source.segment(one) for one in (*backward.args, *left)]
    opening = source.text.index("(", source.end(backward.func))
    edit = Edit(opening + 1, source.end(backward) - 1, ", ".join(given))
    yield Idea("let graphs go", f"without `retain_graph=True`, line {backward.lineno}", source, (edit,))
