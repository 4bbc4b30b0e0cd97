"""What a proof does not speak of: parts of an edit, callers and kindred faults that the run did not come to.

A run proves something of the lines that it executed. Where the edit can be seen from elsewhere, or where the same
fault may stand on a line beside it, the proof must say so.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from torchsan.errors import UsageError
from torchsan.fix.came import Came, Range, innermost, regions, scope
from torchsan.fix.candidates import Candidate
from torchsan.fix.carriers import Carriers
from torchsan.fix.kindred import bound, carries, may_write, relies_on_write, written_through
from torchsan.fix.linked import Definition, Links, names
from torchsan.fix.onlookers import COPIES, reached_elsewhere
from torchsan.fix.rewrites import syntax
from torchsan.fix.safety import is_safe
from torchsan.fix.source import Function, Source, real
from torchsan.fix.trial import Alias, Ran
from torchsan.model import Finding
from torchsan.model.source import real_path

# Edits that add a copy for one reader: nobody else can see them.
UNSEEN = {"keep_graph", "retain_grad", "detach_carried", "clear_cache"}
# Roles of spans that lie on the way of the fault.
# Edits that take the graph from a value.
CUTTING = {"detach_stored", "detach_handed_out", "detach_carried"}
BACKWARD = {"backward", "grad"}
ROLES = ("saved", "mutated", "aliased", "origin", "cause")
STORES = {"TS203"}
MOST_FILES = 200
MOST_BYTES = 400_000


# Layers that never ran: their kind and their path.
Idle = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Edited:
    """All edits of one outcome: files before and after, and what of them was executed."""

    old: dict[str, Source]
    new: dict[str, Source]
    # Every file of the user's that the run executed, as it stands after the edits.
    files: dict[str, Source]
    ran: Ran
    # What was executed again in another turn of a loop.
    again: Ran
    # What was put in by analysis, where no run came; it speaks for itself.
    by_analysis: dict[str, list[Range]]

    @cached_property
    def came(self) -> dict[str, Came]:
        return {path: Came(source, self.ran) for path, source in self.files.items()}

    def changed(self) -> Iterator[tuple[Came, Source, Range, Range]]:
        for path, new in self.new.items():
            came = self.came.get(path) or Came(new, self.ran)
            for was, now in regions(self.old[path], new):
                if not any(start <= now[0] and now[1] <= end for start, end in self.by_analysis.get(path, ())):
                    yield came, self.old[path], was, now


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
        _callers(edited) if seen else "",
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
            return f"the run did not come to the edit at {_at(came.source, node)}"
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
            return f"the loop around {_at(came.source, statement)} took only one turn, and hands on what was edited"
    return ""


# -- callers --------------------------------------------------------------------------------------------------

# Functions that call what they are given.
CALLING = {"map", "filter", "reduce", "starmap", "checkpoint", "submit", "register_forward_hook"}


def _callers(edited: Edited) -> str:
    """Somebody else calls what was edited, by whatever name he has it, and counts on what it wrote."""
    carriers = _carriers(edited)
    if carriers is None:
        return ""
    for came in edited.came.values():
        why = _relied_on(came.source, carriers, came)
        if why:
            return why
    for source in _neighbours(edited):
        why = _relied_on(source, carriers, None)
        if why:
            return why
    return ""


def _relied_on(source: Source, carriers: Carriers, came: Came | None) -> str:
    """The first call that did not run and that is made for what it writes; all count where nothing ran."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or (came is not None and came.to_node(node)):
            continue
        name = syntax.called(node)
        handed = name in CALLING and any(carriers.carry(argument) for argument in node.args)
        is_it = carriers.may_be(node.func) or _is_inherited(node, carriers)
        if handed or (is_it and relies_on_write(source, node)):
            shown = f"{name}()" if name else "it"
            return f"{_at(source, node)}, which did not run, calls {shown} for what it writes"
    return ""


def _is_inherited(call: ast.Call, carriers: Carriers) -> bool:
    """`super().forward(x)`, `Base.forward(self, x)`"""
    func = call.func
    return isinstance(func, ast.Attribute) and func.attr in carriers.methods and "super" in names(func.value)


def _carriers(edited: Edited) -> Carriers | None:
    """All names by which what was edited goes, be it a function, a layer or an object with an edited method."""
    wanted: set[str] = set()
    methods: set[str] = set()
    made: list[ast.AST] = []
    for came, _, _, now in edited.changed():
        source = came.source
        statement = innermost(source, now)
        around = scope(source, statement) if statement is not None else None
        inside = [n for n in ast.walk(statement) if _holds(source, n, now)] if statement is not None else []
        for kind in (ast.Lambda, ast.Call):
            made += sorted((n for n in inside if isinstance(n, kind)), key=source.start)[-1:]
        if isinstance(around, Function) and around.name == "__init__" and isinstance(statement, ast.Assign):
            wanted |= {t.attr for t in statement.targets if isinstance(t, ast.Attribute)}
        elif isinstance(around, Function) and around.name in ("forward", "__call__"):
            owner = next((n for n in source.above(around) if isinstance(n, ast.ClassDef)), None)
            methods.add(around.name)
            made += _constructions(edited, owner.name) if owner is not None else []
        elif isinstance(around, Function) and not around.name.startswith("__"):
            methods.add(around.name)
            wanted.add(around.name)
    if not wanted and not made:
        return None
    carriers = Carriers(edited.files.values(), known_as=wanted, made=made)
    carriers.methods |= methods
    return carriers


def _holds(source: Source, node: ast.AST, region: Range) -> bool:
    return isinstance(node, ast.expr) and source.start(node) <= region[0] and region[1] <= source.end(node)


def _constructions(edited: Edited, name: str) -> list[ast.AST]:
    """Calls that make an object of a class, or of one that inherits from it."""
    known = {name}
    nodes = [node for source in edited.files.values() for node in ast.walk(source.tree)]
    for _ in range(4):
        known |= {n.name for n in nodes if isinstance(n, ast.ClassDef) and any(known & names(base) for base in n.bases)}
    return [node for node in nodes if isinstance(node, ast.Call) and syntax.called(node) in known]


def _neighbours(edited: Edited) -> Iterator[Source]:
    """Files beside an edited one that say its name, and that the run did not import."""
    for path in edited.new:
        folder, stem = os.path.dirname(path), os.path.basename(path).removesuffix(".py")
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".py"))[:MOST_FILES]
        except OSError:
            continue
        for name in names:
            other = os.path.join(folder, name)
            if other in edited.files or not os.path.isfile(other) or os.path.getsize(other) > MOST_BYTES:
                continue
            try:
                source = Source.read(other)
            except UsageError:
                continue
            if stem in source.text:
                yield source


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
                    where = _at(came.source, statement)
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
                return f"{_at(came.source, missed)}, which did not run, needs the graph that is cut"
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
                return f"{_at(came.source, statement)} writes in place, too, and did not run"
            if _shape(statement) in shapes and not isinstance(statement, (ast.Import, ast.ImportFrom)):
                return f"{_at(came.source, statement)} reads as what was edited, and did not run"
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


def _at(source: Source, node: ast.AST) -> str:
    return f"line {getattr(node, 'lineno', 0)} of {os.path.basename(source.path)}"
