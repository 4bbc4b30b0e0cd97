"""What a proof does not speak of: parts of an edit, callers and kindred faults that the run did not come to.

A run proves something of the lines that it executed. Where the edit can be seen from elsewhere, or where the same
fault may stand on a line beside it, the proof must say so.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torchsan.fix.callers import relied_on
from torchsan.fix.came import Came, innermost
from torchsan.fix.candidates import Candidate
from torchsan.fix.edited import Edited, Idle
from torchsan.fix.kindred import bound, carries, may_write, written_through
from torchsan.fix.linked import Definition, Links, names
from torchsan.fix.onlookers import COPIES, reached_elsewhere
from torchsan.fix.rewrites import syntax
from torchsan.fix.safety import is_safe
from torchsan.fix.source import Function, Source, real
from torchsan.fix.trial import Alias
from torchsan.model import Finding
from torchsan.model.source import real_path

# Edits that add a copy for one reader: nobody else can see them.
UNSEEN = {"keep_graph", "retain_grad", "detach_carried", "clear_cache", "single_views"}
# Edits that take the graph from a value.
CUTTING = {"detach_stored", "detach_handed_out", "detach_carried"}
BACKWARD = {"backward", "grad"}
# Roles of spans that lie on the way of the fault.
ROLES = ("saved", "mutated", "aliased", "origin", "cause")
STORES = {"TS203"}


def gap(edited: Edited, mended: Sequence[tuple[Candidate, Finding, Sequence[Alias]]], idle: Idle) -> str:
    """Why what was proved is not the whole truth, in a few words; nothing where no reason is known."""
    seen = [one for one in mended if one[0].rewrite not in UNSEEN | COPIES and not is_safe(one[0])]
    if any(candidate.rewrite == "inplace_false" for candidate, _, _ in mended):
        for kind, path in idle:
            if _is_named(edited, path):
                return f"{path}, a {kind} that works in place, too, was made but never called"
    for reason in (
        _edits(edited),
        _turns(edited),
        relied_on(edited) if seen else "",
        _aliases(edited, seen),
        *(reached_elsewhere(edited.came, candidate, finding) for candidate, finding, _ in mended),
        _graphs(edited) if any(candidate.rewrite in CUTTING for candidate, _, _ in mended) else "",
        _kindred(edited, mended),
    ):
        if reason:
            return reason
    return ""


def _is_named(edited: Edited, path: str) -> bool:
    """May a layer be called: does any line read it, or what holds it?"""
    parts = {part for part in path.split(".") if not part.isdigit()}
    nodes = (node for source in edited.files.values() for node in ast.walk(source.tree))
    return any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and n.attr in parts for n in nodes)


def _edits(edited: Edited) -> str:
    for came, _, _, now in edited.changed():
        node = came.not_run_in(now)
        if node is not None:
            return f"the run did not come to the edit at {came.source.where(node)}"
    return ""


def _turns(edited: Edited) -> str:
    """A value that one turn of a loop hands to the next, in a loop that took one turn only."""
    for came, _, _, now in edited.changed():
        statement = innermost(came.source, now)
        if statement is None:
            continue
        carried = [loop for loop in came.source.above(statement) if isinstance(loop, (ast.For, ast.While))]
        carried = [loop for loop in carried if any(carries(came.source, loop, name) for name in bound(statement))]
        if carried and not Came(came.source, edited.again).to_node(statement):
            return f"the loop around {came.source.where(statement)} took only one turn, and hands on what was edited"
    return ""


# -- other names of the written memory ------------------------------------------------------------------------


def _aliases(edited: Edited, mended: Sequence[tuple[Candidate, Finding, Sequence[Alias]]]) -> str:
    """Another name held the memory that is no longer written, and a line that did not run reads it."""
    for _, _, aliases in mended:
        for alias in aliases:
            came = edited.came.get(alias.path)
            old = edited.old.get(alias.path)
            if came is None or not alias.name.isidentifier():
                continue
            written = _written_names(old, alias.line) if old is not None and not alias.depth else set()
            around = _function_at(came.source, alias.line)
            for statement in came.missed:
                inside = around is None or around in came.source.above(statement)
                if inside and alias.name not in written and alias.name in syntax.loads(statement):
                    where = came.source.where(statement)
                    return f"{where}, which did not run, reads {alias.name}, which was the same memory"
    return ""


def _written_names(old: Source, line: int) -> set[str]:
    statement = old.statement_at(line)
    return written_through(statement) if statement is not None else set()


def _function_at(source: Source, line: int) -> Function | None:
    statement = source.statement_at(line)
    return source.function_of(statement) if statement is not None else None


def _graphs(edited: Edited) -> str:
    """A backward that did not run starts from what has no graph any more."""
    for came, _, _, now in edited.changed():
        statement = innermost(came.source, now)
        cut = {name.rpartition(".")[2] for name in bound(statement)} if statement is not None else set()
        for missed in came.missed:
            own = [n for n in ast.walk(missed) if isinstance(n, ast.Call) and syntax.called(n) in BACKWARD]
            if any(cut & names(call) for call in own) and not isinstance(missed, (ast.If, ast.For, ast.While)):
                return f"{came.source.where(missed)}, which did not run, needs the graph that is cut"
    return ""


# -- the same fault elsewhere ---------------------------------------------------------------------------------


def _kindred(edited: Edited, mended: Sequence[tuple[Candidate, Finding, Sequence[Alias]]]) -> str:
    """A write that did not run, in code that can be called in the place of what was mended."""
    reached = Links(edited.files.values()).reached(_seeds(edited, mended))
    inside = {id(node) for _, whole in reached for node in ast.walk(whole)}
    shapes = {_shape(statement) for _, old, was, _ in edited.changed() if (statement := innermost(old, was))} - {""}
    # What was kept by mistake is mended where it is kept: writes elsewhere are no faults of that kind.
    writes = any(finding.code not in STORES for _, finding, _ in mended)
    for path, came in edited.came.items():
        known = edited.by_analysis.get(path, ())
        for statement in came.missed:
            begin = came.source.start(statement)
            if id(statement) not in inside or any(start <= begin < end for start, end in known):
                continue
            if writes and may_write(came.source, statement):
                return f"{came.source.where(statement)} writes in place, too, and did not run"
            if _shape(statement) in shapes and not isinstance(statement, (ast.Import, ast.ImportFrom)):
                return f"{came.source.where(statement)} reads as what was edited, and did not run"
    return ""


def _shape(statement: ast.stmt) -> str:
    """A statement without its names, numbers and inner statements; nothing where that says nothing about it."""
    inner = ("body", "orelse", "finalbody", "handlers")
    fields = [value for name, value in ast.iter_fields(statement) if name not in inner]
    nodes = [n for value in fields for one in (value if isinstance(value, list) else [value]) for n in _walk(one)]
    methods = [node.attr for node in nodes if isinstance(node, ast.Attribute)]
    kinds = [type(node).__name__ for node in nodes]
    return " ".join((type(statement).__name__, *kinds, *methods)) if methods else ""


def _walk(value: object) -> list[ast.AST]:
    return list(ast.walk(value)) if isinstance(value, ast.AST) else []


def _seeds(edited: Edited, mended: Sequence[tuple[Candidate, Finding, Sequence[Alias]]]) -> list[Definition]:
    found: list[Definition] = []
    wanted: set[str] = set()
    for came, _, _, now in edited.changed():
        statement = innermost(came.source, now)
        if statement is not None:
            found.append(_around(came.source, statement))
            wanted |= {n.name for n in came.source.above(statement) if isinstance(n, Function | ast.ClassDef)}
    for _, finding, _ in mended:
        for span in finding.spans:
            source = edited.files.get(real(real_path(span.path))) if span.role in ROLES else None
            statement = source.statement_at(span.line) if source is not None else None
            if source is not None and statement is not None:
                found.append(_around(source, statement))
    wanted -= {"forward", "main", *(name for name in wanted if name.startswith("__"))}
    return [*found, *Links(edited.files.values()).naming(wanted)]


def _around(source: Source, statement: ast.stmt) -> Definition:
    around = source.function_of(statement)
    return source, around if around is not None else statement
