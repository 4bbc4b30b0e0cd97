"""What anybody else could still tell apart after an edit for a value that was overwritten.

A copy of what an operation saves, made where it saves it, leaves everything else as it was: the operation reads the
same numbers, and the write is made for all who hold the memory. Any other edit takes the write away from somebody. It
is proved only where nobody else holds the memory when it is written, and where no line that did not run could.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from torchsan.effects import lookup
from torchsan.fix.came import Came, innermost, regions
from torchsan.fix.candidates import Candidate
from torchsan.fix.kindred import may_write, written_by
from torchsan.fix.linked import Links, names
from torchsan.fix.rewrites import syntax
from torchsan.fix.rewrites.stored import KEEPING
from torchsan.fix.safety import is_safe, only_values_taken
from torchsan.fix.source import Function, Source
from torchsan.fix.trial import HELD, Alias, Holder
from torchsan.model import Finding

# Faults whose truth is the healed run, in which the write is made for all who hold the memory.
WRITTEN_FOR_ALL = {"TS101", "TS110", "TS201"}
COPIES = {"clone_saved", "clone_saved_result"}
# Edits that leave every write as it is: others come before it, or each part is taken by itself.
LEAVING = {"step_later", "call_later", "single_views"}
# What may be asked of a tensor without getting at its memory.
OUTSIDE = {"shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "layout", "names", "grad_fn", "is_cuda"}
ASKING = {"print", "len", "float", "int", "bool", "str", "repr", "isinstance", "type", "id", "format", "round", "abs"}
Lookup = Callable[[str], Source | None]


def is_narrow(candidate: Candidate) -> bool:
    """A copy of just what an operation of torch saves: after it nobody can tell anything apart but the fault."""
    return candidate.rewrite in COPIES and is_safe(candidate)


def seen_by_others(candidate: Candidate, finding: Finding, aliases: Sequence[Alias], sources: Lookup) -> str:
    """Who held the memory when it was written, in the run, and is not given the new value by the edit."""
    if finding.code not in WRITTEN_FOR_ALL or candidate.rewrite in LEAVING or is_narrow(candidate):
        return ""
    line = next((span.line for span in finding.spans if span.role == "mutated"), finding.primary.line)
    if candidate.rewrite in COPIES and not _writes_itself(candidate, line):
        return _seen_through_copy(candidate, aliases, sources)
    rebound = _bound_by(candidate) if candidate.rewrite not in COPIES else set()
    part = _writes_part(candidate)
    for alias in aliases:
        if alias.apart and not part:
            continue  # other elements of the memory
        if alias.name != HELD:
            if alias.name not in rebound and _is_read_later(alias, sources):
                return f"{alias.name}, which is read afterwards, is the memory that line {line} no longer writes"
            continue
        for holder in alias.by:
            if holder.name in rebound or (holder.apart and not part):
                continue
            if holder.depth < 0 or _is_read_later(holder, sources):
                return f"{holder.name} holds the memory that line {line} no longer writes"
    return ""


def _writes_part(candidate: Candidate) -> bool:
    """Of the variable that gets a new value only some elements are written; then all of its memory counts."""
    span = candidate.span
    statement = candidate.source.statement(span) if span is not None else None
    written = written_by(statement) if statement is not None else None
    return written is not None and not isinstance(written, (ast.Name, ast.Attribute))


def _writes_itself(candidate: Candidate, line: int) -> bool:
    """The copy is for a call that makes the write."""
    saver = candidate.source.expression(candidate.span) if candidate.span is not None else None
    return saver is None or saver.lineno <= line <= (saver.end_lineno or saver.lineno)


def _seen_through_copy(candidate: Candidate, aliases: Sequence[Alias], sources: Lookup) -> str:
    """A copy for what is no plain operation, which may give back or keep what it is given."""
    saver = candidate.source.expression(candidate.span) if candidate.span is not None else None
    if saver is None:
        return ""
    around = candidate.source.statement_of(saver)
    linked = syntax.loads(saver) if candidate.rewrite == "clone_saved_result" else set()
    linked |= syntax.stores(around) if around is not None and candidate.rewrite == "clone_saved" else set()
    own, new = _called(candidate.source, saver)
    for alias in aliases:
        if alias.name in linked and not alias.depth and (own or not new) and _is_read_later(alias, sources):
            return f"{alias.name} is the memory that is written, and would be apart from its copy"
        for holder in alias.by if own else ():
            if holder.depth < 0:
                return f"{holder.name} holds the memory that is written, and would be apart from its copy"
    return ""


def _called(source: Source, saver: ast.expr) -> tuple[bool, bool]:
    """Is code of the program's own called, which may keep what it is given; are these layers that make new memory?"""
    called = {name for node in ast.walk(saver) if isinstance(node, ast.Call) for name in names(node.func)}
    reached = Links([source]).reached((source, ast.Name(name, ast.Load())) for name in called)
    made = [whole.value for _, whole in reached if isinstance(whole, ast.Assign) and isinstance(whole.value, ast.Call)]
    own = any(isinstance(whole, Function) for _, whole in reached) or not reached
    return own, bool(made) and all(any(map(_makes_new, ast.walk(value))) for value in made)


def _makes_new(node: ast.AST) -> bool:
    row = lookup(f"nn.{syntax.called(node)}") if isinstance(node, ast.Call) else None
    return row is not None and not (row.alias or row.may_alias or row.view)


def _bound_by(candidate: Candidate) -> set[str]:
    """Names, attributes and containers to which the edited statements give the new value."""
    after = candidate.result()
    found: set[str] = set()
    if after is None:
        return found
    for _, now in regions(candidate.source, after):
        nodes = [node for node in ast.walk(after.tree) if isinstance(node, ast.stmt)]
        put_in: list[ast.stmt | None] = [node for node in nodes if now[0] <= after.start(node) < now[1]]
        for statement in (innermost(after, now), *put_in):
            for node in ast.walk(statement) if isinstance(statement, (ast.Assign, ast.AugAssign)) else ():
                if isinstance(getattr(node, "ctx", None), ast.Store):
                    found |= _own_names(node)
    return found


def _own_names(target: ast.AST) -> set[str]:
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Attribute):
        return {target.attr}
    return {target.id} if isinstance(target, ast.Name) else set()


def _is_read_later(held: Alias | Holder, sources: Lookup) -> bool:
    source = sources(held.path)
    statement = source.statement_at(held.line) if source is not None else None
    if source is None or statement is None:
        return True
    if held.name in syntax.stores(statement):
        return False  # bound anew by the very statement
    return syntax.is_read_again(source, statement, ast.Name(held.name, ast.Load()))


# -- code that did not run --------------------------------------------------------------------------------------


def reached_elsewhere(came: dict[str, Came], candidate: Candidate, finding: Finding) -> str:
    """A line that did not run and that could get at the memory, or at the layer that is edited."""
    if finding.code not in WRITTEN_FOR_ALL or candidate.rewrite in LEAVING or is_safe(candidate):
        return ""
    if candidate.rewrite in COPIES:
        call = candidate.source.expression(candidate.span) if candidate.span is not None else None
        nodes = [node for node in ast.walk(call) if isinstance(node, ast.Call)] if call is not None else []
        why = _kept_by_callee(came, candidate.source, {name for node in nodes for name in names(node.func)})
        return f"{why} may keep or write what is copied here" if why else ""
    for one in came.values():
        for statement, name in _written_variables(candidate):
            if one.source.path == candidate.source.path or "." in name:
                why = _may_hold(came, one, candidate.source.function_of(statement), name)
                if why:
                    return f"{why} may keep {name}, which is no longer written"
    return ""


def _written_variables(candidate: Candidate) -> Iterator[tuple[ast.stmt, str]]:
    """The variable whose memory the edited statement wrote: `h`, `self.h`."""
    span = candidate.span
    statement = candidate.source.statement(span) if span is not None else None
    written = written_by(statement) if statement is not None else None
    variable = syntax.variable_of(written) if written is not None else None
    if statement is not None and variable is not None:
        yield statement, ast.unparse(variable)


def _may_hold(came: dict[str, Came], here: Came, scope: Function | None, name: str) -> str:
    """What did not run and may store the memory: a read of it, or a line to which it is handed."""
    for node in ast.walk(here.source.tree):
        if not isinstance(node, (ast.Name, ast.Attribute)) or not _reads(node, name):
            continue
        statement = here.source.statement_of(node)
        around = here.source.function_of(statement) if statement is not None else None
        same = "." in name or (around.name if around is not None else "") == (scope.name if scope is not None else "")
        if not same or statement is None or _harmless(here.source, node):
            continue
        if not here.to_node(node):
            return f"{here.source.where(node)}, which did not run,"
        why = _kept_by_callee(came, here.source, _handed_to(here.source, node))
        if why:
            return why
    return ""


def _handed_to(source: Source, read: ast.expr) -> set[str]:
    """Names of what is called with it, in the expression around it."""
    called: set[str] = set()
    node: ast.AST | None = read
    while isinstance(node, (ast.expr, ast.keyword)):
        node = source.parents.get(node)
        if isinstance(node, ast.Call):
            called |= names(node.func) - {read.id if isinstance(read, ast.Name) else ""}
    return called


def _reads(node: ast.Name | ast.Attribute, name: str) -> bool:
    if not isinstance(node.ctx, ast.Load):
        return False
    if "." in name:
        return isinstance(node, ast.Attribute) and node.attr == name.rpartition(".")[2]
    return isinstance(node, ast.Name) and node.id == name


def _harmless(source: Source, read: ast.expr) -> bool:
    """Only values are taken of it, or what is no memory: nobody holds it afterwards."""
    if only_values_taken(source, read):
        return True
    parent = source.parents.get(read)
    if isinstance(parent, ast.Attribute):
        return parent.attr in OUTSIDE
    if isinstance(parent, ast.FormattedValue):
        return True
    return isinstance(parent, ast.Call) and read in parent.args and syntax.called(parent) in ASKING


def _kept_by_callee(came: dict[str, Came], source: Source, called: set[str]) -> str:
    """A part of what is called, by these names and through others, that did not run and may keep what it is given."""
    links = Links(one.source for one in came.values())
    reached = links.reached((source, ast.Name(name, ast.Load())) for name in sorted(called))
    inside = {id(node) for _, whole in reached if isinstance(whole, Function) for node in ast.walk(whole)}
    for one in came.values() if inside else ():
        for node in ast.walk(one.source.tree):
            if id(node) in inside and _keeps(one, node):
                return f"{one.source.where(node)}, which did not run,"
    return ""


def _keeps(came: Came, node: ast.AST) -> bool:
    """Did not run, and stores something, writes it or gives it back as it is."""
    if isinstance(node, ast.IfExp):
        bare = [part for part in (node.body, node.orelse) if isinstance(part, (ast.Name, ast.Attribute, ast.Subscript))]
        return any(not came.to_node(part) for part in bare)
    if not isinstance(node, ast.stmt) or came.to_node(node):
        return False
    if isinstance(node, ast.Return):
        return isinstance(node.value, (ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List))
    if isinstance(node, ast.Assign) and any(isinstance(one, (ast.Attribute, ast.Subscript)) for one in node.targets):
        return True
    calls = (one for one in ast.walk(node) if isinstance(one, ast.Call))
    return may_write(came.source, node) or any(syntax.called(call) in KEEPING for call in calls)
