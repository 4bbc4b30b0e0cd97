"""The program in which each holder of shared memory keeps its value: source that makes copies while it runs.

It is never shown to anybody. What is stored goes through `kept`, what is written through `own` (see `keeping`), where
the finding says that memory is stored or written; what the program then computes is what an edit has to reach.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from torchsan.fix.rewrites import syntax
from torchsan.fix.rewrites.stored import handed_out, same_stores, stored_values
from torchsan.fix.source import Edit, Function, Source
from torchsan.fix.written import arguments, is_for_others, own_attribute, written_by
from torchsan.model import Finding, Span

HELPER = '__import__("torchsan.fix.keeping", fromlist=["own"])'
Sources = Callable[[str], Source | None]
# Where something was stored: new findings say `aliased`, older ones `cause`.
STORED = ("aliased", "cause")


def keeping_sources(finding: Finding, sources: Sources) -> Iterator[dict[str, Source]]:
    """The files with copies put in, by each way that makes sense; nothing where it is not clear what to copy."""
    for plan in _plans(finding, sources):
        edits: dict[str, set[Edit]] = {}
        for path, found in plan:
            edits.setdefault(path, set()).update(found)
        changed = {}
        for path, planned in edits.items():
            source = sources(path)
            after = source.edited(planned) if source is not None else None
            if after is not None:
                changed[after.path] = after
        if changed and len(changed) == len(edits):
            yield changed


def _plans(finding: Finding, sources: Sources) -> Iterator[Iterator[tuple[str, list[Edit]]]]:
    if finding.code == "TS203":
        yield _at_handing_out(finding, sources)
        yield _at_stores(finding, sources)
        yield _at_writes(finding, sources, defaults=True)
    elif finding.code == "TS107":
        yield _at_expansions(finding, sources)
    elif finding.code == "TS210":
        yield _at_operands(finding, sources)
    elif finding.code == "TS204":
        # As narrow as the finding: this caller keeps its value, others may count on the write.
        if not _written_for_others(finding, sources):
            yield _at_calls(finding, sources)
            yield _at_writes(finding, sources, defaults=False)
            yield _at_stores(finding, sources)
    else:
        if finding.code == "TS205":
            yield _at_writes(finding, sources, defaults=True)
            yield _at_definitions(finding, sources)
        # What is shared between calls need not be a default: the writer has his own from the start.
        yield _at_writes(finding, sources, defaults=False)
        yield _at_stores(finding, sources)


def _written_for_others(finding: Finding, sources: Sources) -> bool:
    """The function that writes has no use for what it wrote: the caller is meant to see it."""
    for span in _spans(finding, "mutated"):
        source = sources(span.path)
        statement = source.statement(span) if source is not None else None
        function = source.function_of(statement) if source is not None and statement is not None else None
        if source is None or statement is None or function is None:
            continue
        written = written_by(source, statement, span)
        root = syntax.root_name(written) if written is not None else ""
        if root in arguments(function):
            return is_for_others(source, function, statement, root)
    return False


def _at_calls(finding: Finding, sources: Sources) -> Iterator[tuple[str, list[Edit]]]:
    """The caller hands over copies of what it names."""
    for span in _spans(finding, "cause", "aliased"):
        source = sources(span.path)
        call = source.expression(span) if source is not None else None
        if source is None or not isinstance(call, ast.Call) or syntax.called(call)[:1].isupper():
            continue
        named = [a for a in call.args if isinstance(a, (ast.Name, ast.Attribute, ast.Subscript))]
        if named:
            yield source.path, [edit for argument in named for edit in around(source, argument, "own")]
            return


def _at_expansions(finding: Finding, sources: Sources) -> Iterator[tuple[str, list[Edit]]]:
    for span in _spans(finding, "origin", "aliased", "cause"):
        source = sources(span.path)
        statement = source.statement(span) if source is not None else None
        values = stored_values(source, statement, span) if source is not None and statement is not None else []
        if source is not None and values:
            yield source.path, [edit for value, _ in values for edit in around(source, value, "apart")]
            return


def _at_operands(finding: Finding, sources: Sources) -> Iterator[tuple[str, list[Edit]]]:
    """An op that writes what it reads reads copies."""
    for span in _spans(finding, "mutated"):
        source = sources(span.path)
        statement = source.statement(span) if source is not None else None
        for call in ast.walk(statement) if statement is not None else ():
            if source is not None and isinstance(call, ast.Call) and syntax.is_inplace_call(call):
                given = [a for a in call.args if isinstance(a, (ast.Name, ast.Attribute, ast.Subscript))]
                if syntax.is_module_function(call) and syntax.out_of(call) is None:
                    given = given[1:]
                yield source.path, [edit for argument in given for edit in around(source, argument, "own")]
                return


def _spans(finding: Finding, *roles: str) -> list[Span]:
    return [span for role in roles for span in finding.spans if span.role == role]


# -- stores ---------------------------------------------------------------------------------------------------


def _at_stores(finding: Finding, sources: Sources) -> Iterator[tuple[str, list[Edit]]]:
    for role in STORED:
        for span in _spans(finding, role):
            source = sources(span.path)
            statement = source.statement(span) if source is not None else None
            if source is None or statement is None:
                continue
            values = stored_values(source, statement, span)
            found = [edit for value, way in values for edit in around(source, value, way)]
            for value, _ in values:
                found += [
                    edit for other in same_stores(source, statement, value) for edit in around(source, other, "kept")
                ]
            if found:
                yield source.path, found
                return


def _at_handing_out(finding: Finding, sources: Sources) -> Iterator[tuple[str, list[Edit]]]:
    """What a method returns of the written memory: whoever stores it later holds it from then on."""
    for span in _spans(finding, "mutated"):
        source = sources(span.path)
        statement = source.statement(span) if source is not None else None
        written = written_by(source, statement, span) if source is not None and statement is not None else None
        if source is not None and statement is not None and written is not None:
            edits = [e for value in handed_out(source, statement, written) for e in around(source, value, "kept_data")]
            if edits:
                yield source.path, edits
                return


def around(source: Source, value: ast.expr, way: str) -> list[Edit]:
    start, end = source.start(value), source.end(value)
    # `a, b` without parentheses would be two arguments.
    opening, closing = ("((", "))") if isinstance(value, ast.Tuple) else ("(", ")")
    return [Edit(start, start, f"{HELPER}.{way}{opening}"), Edit(end, end, closing)]


# -- writes ---------------------------------------------------------------------------------------------------


def _at_writes(finding: Finding, sources: Sources, *, defaults: bool) -> Iterator[tuple[str, list[Edit]]]:
    for span in _spans(finding, "mutated"):
        source = sources(span.path)
        statement = source.statement(span) if source is not None else None
        if source is None or statement is None:
            continue
        found = list(_owned(source, statement, span, defaults=defaults, hook=finding.code == "TS208"))
        if found:
            yield source.path, found
            return


def _at_definitions(finding: Finding, sources: Sources) -> Iterator[tuple[str, list[Edit]]]:
    """A default that is stored under a name, by which others write it later: each call stores a copy of it."""
    written = {name for span in _spans(finding, "mutated") for name in [_attribute_written(span, sources)] if name}
    for span in _spans(finding, "aliased", "cause"):
        source = sources(span.path)
        function = source.statement_at(span.line) if source is not None else None
        if source is None or not isinstance(function, Function):
            continue
        stored = [n for n in ast.walk(function) if isinstance(n, ast.Assign) and isinstance(n.value, ast.Name)]
        names = {
            n.value.id
            for n in stored
            if isinstance(n.value, ast.Name)
            and any(isinstance(t, ast.Attribute) and t.attr in written for t in n.targets)
        } & arguments(function)
        if names:
            lines = [f"{name} = {HELPER}.own_default({name})" for name in sorted(names)]
            yield source.path, [edit for line in lines for edit in at_entry(source, function, line)]
            return


def _attribute_written(span: Span, sources: Sources) -> str | None:
    source = sources(span.path)
    statement = source.statement(span) if source is not None else None
    written = written_by(source, statement, span) if source is not None and statement is not None else None
    return own_attribute(written) if written is not None else None


def _owned(source: Source, statement: ast.stmt, span: Span, *, defaults: bool, hook: bool) -> Iterator[Edit]:
    """The writer gets a copy of his own: of an argument, of what a name was bound to, of a class or module."""
    written = written_by(source, statement, span)
    root = syntax.root_name(written) if written is not None else ""
    function = source.function_of(statement)
    if written is None:
        call = source.expression(span)
        if isinstance(call, ast.Call):
            # A layer that writes what it is given.
            for argument in call.args:
                if not isinstance(argument, ast.Constant):
                    yield from around(source, argument, "own")
        return
    inline = next((n for n in source.above(written) if isinstance(n, ast.Lambda)), None)
    if inline is not None and root in {a.arg for a in ast.walk(inline.args) if isinstance(a, ast.arg)}:
        yield from around(source, written, "own")
        return
    if function is None:
        return
    given = root in arguments(function) and root not in ("self", "cls")
    if given and is_for_others(source, function, statement, root):
        # The function is called for what it writes: a copy would undo it, unless a hook may return it instead.
        if not hook:
            return
        edit = syntax.insert_after(source, function.body[-1], f"return {root}")
        if edit is not None:
            yield edit
    if given:
        way = "own_default" if defaults else "own"
        yield from at_entry(source, function, f"{root} = {HELPER}.{way}({root})")
    elif root in ("self", "cls"):
        attribute = own_attribute(written)
        if attribute is not None:
            text = f"{root}.{attribute} = {HELPER}.own({root}.{attribute})"
            test = f'if "{attribute}" not in vars({root}): {text}'
            edit = syntax.insert_before(source, statement, test)
            if edit is not None:
                yield edit
    elif _bound_here(function, root):
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign) or node is statement:
                continue
            if any(isinstance(t, ast.Name) and t.id == root for t in node.targets):
                yield from around(source, node.value, "own")
    else:
        yield from at_entry(source, function, f"{root} = {HELPER}.own(globals()[{root!r}])")


def _bound_here(function: Function, name: str) -> bool:
    outside = {n for node in ast.walk(function) if isinstance(node, (ast.Global, ast.Nonlocal)) for n in node.names}
    return name in syntax.stores(function) and name not in outside


def at_entry(source: Source, function: Function, line: str) -> Iterator[Edit]:
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    edit = syntax.insert_before(source, body[0], line) if body else None
    if edit is not None:
        yield edit
