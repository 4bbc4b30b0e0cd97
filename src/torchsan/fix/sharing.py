"""Who still holds the memory that a line writes, after one of its holders has been given a copy."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from torchsan.fix.beside import stored_texts
from torchsan.fix.candidates import Candidate
from torchsan.fix.cases import LEAVES
from torchsan.fix.kindred import written_by
from torchsan.fix.linked import names as mentioned
from torchsan.fix.rewrites import syntax
from torchsan.fix.rewrites.stored import KEEPING
from torchsan.fix.source import Source, line_map, real
from torchsan.fix.trial import HELD, Alias, Aliases
from torchsan.model import Finding, Span
from torchsan.model.source import real_path

# Edits after which the same memory is written as before, and the faults for which they are proposed.
LEAVE_THE_WRITE = {"clone_saved", "clone_saved_result"}
SAVED = {"TS101", "TS110", "TS201"}
AND_MAY = "and may be meant to keep its value"
Lookup = Callable[[str], Source | None]
# One holder of several: a copy for it says nothing of the others.
SNAPSHOTS = {"TS203"}


def still_shared(
    changed: dict[str, Source], mended: Sequence[tuple[Candidate, Finding, Sequence[Alias]]], aliases: Aliases
) -> str:
    """Why the edit gives a copy to some of the holders only; nothing where none is left that we can see."""
    for candidate, finding, _ in mended:
        if finding.code not in SNAPSHOTS:
            continue
        names = _containers(candidate, finding)
        # What is stored again and again goes by a name that is a handle: the copies are taken from it.
        handles = set(stored_texts(candidate.source, finding))
        for span in finding.spans:
            if span.role != "mutated":
                continue
            path = real(real_path(span.path))
            others = names - (_named(candidate.source, span) if candidate.source.path == path else set())
            for line in _lines_now(candidate.source, changed.get(path), path, span.line):
                for alias in aliases.get((path, line), []):
                    why = _left(changed, candidate, alias, others) if alias.name not in handles else ""
                    if why:
                        return f"{why} is still the memory that line {line} writes"
    return ""


def named_twice(candidate: Candidate, finding: Finding, aliases: Sequence[Alias]) -> str:
    """Why a refused write may be meant for one of two names only: the leaf goes by another one there, too."""
    if finding.code not in LEAVES:
        return ""
    for span in finding.spans:
        inside = span.role == "mutated" and real(real_path(span.path)) == candidate.source.path
        statement = candidate.source.statement(span) if inside else None
        target = _written(statement)
        if target is None:
            continue
        here = [a for a in aliases if a.line == span.line and not a.depth and a.whole and a.name != HELD]
        others = sorted({alias.name for alias in here} - mentioned(target))
        if others:
            return f"{ast.unparse(target)} is also {others[0]} there, and may be meant to be a copy of it"
    return ""


def meant_to_stay(candidate: Candidate, finding: Finding, aliases: Sequence[Alias], sources: Lookup) -> str:
    """Why the write, which the edit leaves where it is, may be meant for one of several holders only.

    The healed run makes it for all of them: what a list was given before is changed with the name it was given by.
    """
    if candidate.rewrite not in LEAVE_THE_WRITE or finding.code not in SAVED:
        return ""
    for span in finding.spans:
        source = sources(span.path) if span.role == "mutated" else None
        statement = source.statement(span) if source is not None else None
        target = _written(statement)
        if source is None or statement is None or not isinstance(target, ast.Name):
            continue  # a part is written, or what an object holds: whoever holds the whole is to see it
        near = [a for a in aliases if a.line == span.line or a.depth]
        for alias in near:
            if alias.name == HELD:
                kept = sorted(set(alias.through) & _given_to(source, statement, target.id))
                if kept:
                    return f"{kept[0]} was given {target.id} before line {span.line} writes it, {AND_MAY}"
            elif alias.whole and alias.name != target.id and _keeps(alias, statement, sources):
                return f"{alias.name} is the same memory as {target.id}, which line {span.line} writes, {AND_MAY}"
    return ""


def _given_to(source: Source, write: ast.stmt, name: str) -> set[str]:
    """Containers and attributes that this function gives the whole of a variable."""
    found: set[str] = set()
    for node in ast.walk(source.scope_of(write)):
        if not isinstance(node, ast.stmt) or node is write:
            continue
        whole = node.value if isinstance(node, (ast.Assign, ast.Expr)) else None
        if isinstance(node, ast.Assign) and isinstance(whole, ast.Name) and whole.id == name:
            places: list[ast.expr] = list(node.targets)
        elif name in {a.id for a in _members(whole) if isinstance(a, ast.Name)}:
            call = whole.func if isinstance(whole, ast.Call) else None
            places = [call.value] if isinstance(call, ast.Attribute) else []
            places += node.targets if isinstance(node, ast.Assign) else []
        else:
            continue
        found |= {n for place in places for n in mentioned(place)}
    return found - {"self", name}


def _members(value: ast.expr | None) -> list[ast.expr]:
    """What stands in a literal, or is handed to a method that keeps it."""
    if isinstance(value, ast.Call):
        given = value.args if syntax.called(value) in KEEPING else []
        return [part for argument in given for part in [argument, *_members(argument)]]
    if isinstance(value, (ast.List, ast.Tuple)):
        return value.elts
    return [one for one in value.values if one is not None] if isinstance(value, ast.Dict) else []


def _keeps(alias: Alias, write: ast.stmt, sources: Lookup) -> bool:
    """Is it read again under its own name, where the write was not called for as such?"""
    source = sources(alias.path)
    statement = write if not alias.depth else source.statement_at(alias.line) if source is not None else None
    if source is None or statement is None or alias.name in syntax.stores(statement):
        return False
    if alias.depth and isinstance(statement, ast.Expr):
        return False
    return syntax.is_read_again(source, statement, ast.Name(alias.name, ast.Load()))


def _written(statement: ast.stmt | None) -> ast.expr | None:
    """`x[0]` of `x[0] += 1`, `x` of `x.add_(1)` and of `x[0] = 1`."""
    written = written_by(statement) if statement is not None else None
    whole = isinstance(statement, ast.Assign) and isinstance(written, ast.Subscript)
    return written.value if whole and isinstance(written, ast.Subscript) else written


def _named(source: Source, span: Span) -> set[str]:
    """What the write itself gets at its memory by: `cells` of `cells[0].add_(1)`, of `for c in cells: c.add_(1)`."""
    statement = source.statement(span)
    if statement is None:
        return set()
    loops = [node for node in source.above(statement) if isinstance(node, ast.For)]
    return mentioned(statement).union(*(mentioned(loop.iter) for loop in loops))


def _lines_now(old: Source, new: Source | None, path: str, line: int) -> list[int]:
    if new is None or old.path != path:
        return [line]
    return [now for now, was in line_map(old, new).items() if was == line]


def _left(changed: dict[str, Source], candidate: Candidate, alias: Alias, names: set[str]) -> str:
    if alias.name == HELD:
        found = sorted(names & set(alias.through))
        return f"a member of {found[0]}" if found else ""
    if not alias.depth:
        return ""
    # A name in a caller, which did not hand it over, and which reads it after the write.
    source = changed.get(alias.path) or (candidate.source if candidate.source.path == alias.path else None)
    statement = source.statement_at(alias.line) if source is not None else None
    if source is None or statement is None or alias.name in syntax.loads(statement) | syntax.stores(statement):
        return ""
    read = syntax.is_read_again(source, statement, ast.Name(alias.name, ast.Load()))
    return f"{alias.name}, which line {alias.line} does not name," if read else ""


def _containers(candidate: Candidate, finding: Finding) -> set[str]:
    """What the finding's store puts things into: `frames` of `frames.append(x)`, of `frames = [x]`."""
    found: set[str] = set()
    for span in finding.spans:
        source = candidate.source
        if span.role not in ("aliased", "cause") or real(real_path(span.path)) != source.path:
            continue
        statement = source.statement(span)
        calls = [n.func for n in ast.walk(statement) if isinstance(n, ast.Call)] if statement is not None else []
        places = [func.value for func in calls if isinstance(func, ast.Attribute)]
        places += statement.targets if isinstance(statement, ast.Assign) else []
        for place in places:
            while isinstance(place, ast.Subscript):
                place = place.value
            if isinstance(place, ast.Attribute):
                found.add(place.attr)
            elif isinstance(place, ast.Name):
                found.add(place.id)
    return found - {"self", "torch", "copy", "np", "numpy"}
