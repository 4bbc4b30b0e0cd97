"""Memory that is shared beside what was mended: another attribute of the class, another store of its methods.

What is reported need not be all: a second attribute may be written in a way that hides it, or by a line whose harm is
small. So the mended program runs once more with copies for these as well; where that changes anything the edit alone
leaves a fault standing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from torchsan.fix.counterfactual import HELPER, around, at_entry
from torchsan.fix.kindred import written_by
from torchsan.fix.rewrites import syntax
from torchsan.fix.rewrites.stored import KEEPING
from torchsan.fix.rewrites.stores import _copies
from torchsan.fix.source import Edit, Function, Source, real
from torchsan.model import Finding
from torchsan.model.source import real_path

# Calls and attributes that hand out the memory itself.
HANDING_OUT = {"state_dict", "detach", "numpy", "data"}
COPYING = {"clone", "copy", "deepcopy", "detach"}
ROLES = ("aliased", "cause", "mutated")


@dataclass(frozen=True, slots=True)
class Beside:
    """One place: what is shared there, the copy for the run, and the edit that a person would make."""

    line: int
    what: str
    copies: tuple[Edit, ...]
    mends: tuple[Edit, ...]
    # The copy is a variable's: one that is written through is a handle, and not to be copied.
    handle: bool = False


def shared_beside(old: Source, new: Source, finding: Finding) -> list[Beside]:
    """Places of the edited file that are like the mended one; `old` is the file that the finding tells of."""
    found: dict[tuple[int, str], Beside] = {}
    for function, owner, stores in _mended_in(old, new, finding):
        places: list[Iterator[Beside]] = []
        if stores:
            places += [_bindings(new, old, finding)]
            near = _methods(owner) or [function or new.tree]
            places += [_stores(new, one) for one in near]
            elsewhere = [f for f in ast.walk(new.tree) if isinstance(f, Function) and f not in near]
            texts = set(stored_texts(old, finding))
            places += [_stores(new, one, texts) for one in [*elsewhere, *([new.tree] if function else [])]]
        else:
            places += [_writes(new, function)] if isinstance(function, Function) else []
            places += [_class_attributes(new, owner)] if owner is not None else []
            definitions = [f for f in (function, _constructor(owner)) if isinstance(f, Function)]
            places += [_defaults(new, one) for one in definitions]
        for place in places:
            for one in place:
                found.setdefault((one.line, one.what), one)
    return list(found.values())


def _mended_in(
    old: Source, new: Source, finding: Finding
) -> Iterator[tuple[Function | None, ast.ClassDef | None, bool]]:
    """The function and the class of the mended place, as the new file has them; and whether it is a store."""
    for span in finding.spans:
        statement = old.statement(span) if real(real_path(span.path)) == old.path else None
        if statement is None or span.role not in ROLES:
            continue
        above = [n for n in (statement, *old.above(statement)) if isinstance(n, Function | ast.ClassDef)]
        functions = [n for n in above if isinstance(n, Function)]
        classes = [n for n in above if isinstance(n, ast.ClassDef)]
        function = _same(old, new, functions[0]) if functions else None
        owner = _same(old, new, classes[0]) if classes else None
        yield (
            function if isinstance(function, Function) else None,
            owner if isinstance(owner, ast.ClassDef) else None,
            span.role != "mutated" and finding.code == "TS203",
        )


def _same(old: Source, new: Source, node: Function | ast.ClassDef) -> ast.AST | None:
    """The definition that stands in the new file for one of the old; edits move none."""
    path = _path(old, node)
    found = (n for n in ast.walk(new.tree) if isinstance(n, Function | ast.ClassDef) and n.name == node.name)
    return next((n for n in found if _path(new, n) == path), None)


def _path(source: Source, node: ast.AST) -> list[str]:
    return [n.name for n in (node, *source.above(node)) if isinstance(n, Function | ast.ClassDef)]


def _methods(owner: ast.ClassDef | None) -> list[ast.AST]:
    return [n for n in owner.body if isinstance(n, Function)] if owner is not None else []


def _constructor(owner: ast.ClassDef | None) -> ast.AST | None:
    return next((n for n in _methods(owner) if isinstance(n, Function) and n.name == "__init__"), None)


# -- stores ---------------------------------------------------------------------------------------------------


def stored_texts(old: Source, finding: Finding) -> Iterator[str]:
    """What the mended place stored, as it was written there."""
    for span in finding.spans:
        here = span.role in ("aliased", "cause") and real(real_path(span.path)) == old.path
        statement = old.statement(span) if here else None
        for value in _kept_as_it_is(statement) if statement is not None else ():
            yield ast.unparse(value)


def _stores(source: Source, scope: ast.AST, texts: set[str] | None = None) -> Iterator[Beside]:
    """Whatever is kept in the scope as it is, without a copy; with `texts`, only what is handed out or reads so."""
    for node in ast.walk(scope):
        if isinstance(node, ast.stmt) and source.scope_of(node) is scope:
            for value in _kept_as_it_is(node):
                if texts is not None and not _is_handed_out(value) and ast.unparse(value) not in texts:
                    continue
                copies = around(source, value, "kept_data")
                mends = next(iter(_copies(source, value)), ("", ()))[1]
                yield Beside(value.lineno, source.segment(value), tuple(copies), tuple(mends))


def _kept_as_it_is(statement: ast.stmt) -> list[ast.expr]:
    value = getattr(statement, "value", None)
    if isinstance(statement, (ast.Assign, ast.AnnAssign)) and isinstance(value, ast.expr):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        places = [part for target in targets for part in _members(target)]
        lasting = any(isinstance(place, (ast.Attribute, ast.Subscript)) for place in places)
        return [v for v in _members(value) if _is_handed_out(v) or (lasting and _is_bare(v))]
    call = value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in KEEPING:
        return [v for argument in call.args for v in _members(argument) if _is_handed_out(v) or _is_bare(v)]
    return []


def _members(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, (ast.Tuple, ast.List)):
        return [part for item in value.elts for part in _members(item)]
    if isinstance(value, ast.Dict):
        return [part for item in value.values for part in _members(item)]
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        return _members(value.elt)
    if isinstance(value, ast.DictComp):
        return _members(value.value)
    return [value]


def _is_handed_out(value: ast.expr) -> bool:
    func = value.func if isinstance(value, ast.Call) else value
    return isinstance(func, ast.Attribute) and func.attr in HANDING_OUT


def _is_bare(value: ast.expr) -> bool:
    return isinstance(value, (ast.Name, ast.Attribute, ast.Subscript))


# -- what is stored, from where it was taken ------------------------------------------------------------------


def _bindings(source: Source, old: Source, finding: Finding) -> Iterator[Beside]:
    """Where a loop takes what it stores at its end: written in between, it is no longer what was taken."""
    for name, scope in _stored_names(source, set(stored_texts(old, finding))):
        bound = [n for n in ast.walk(scope) if isinstance(n, ast.Assign) and name in _names_bound(n)]
        if not any(source.loop_of(n) is not None for n in bound):
            continue  # taken once, to be looked at again and again
        for statement in bound:
            value = statement.value
            if isinstance(value, (ast.Call, ast.Name, ast.Attribute, ast.Subscript)):
                mends = next(iter(_copies(source, value)), ("", ()))[1] if isinstance(value, ast.Call) else ()
                yield Beside(
                    value.lineno, source.segment(value), tuple(around(source, value, "kept_data")), tuple(mends), True
                )


def _names_bound(statement: ast.Assign) -> set[str]:
    return {target.id for target in statement.targets if isinstance(target, ast.Name)}


def _stored_names(source: Source, texts: set[str]) -> Iterator[tuple[str, ast.AST]]:
    """Variables that are stored, each with the function that binds it: that of the store, or one that calls it."""
    for statement in (n for n in ast.walk(source.tree) if isinstance(n, ast.stmt)):
        for value in _kept_copied(statement):
            function = source.function_of(statement)
            if ast.unparse(value) not in texts or not isinstance(value, ast.Name):
                continue
            arguments = [a.arg for a in function.args.args] if function is not None else []
            if function is None or value.id not in arguments:
                yield value.id, source.scope_of(statement)
                continue
            place = arguments.index(value.id) - (arguments[0] in ("self", "cls"))
            for call in (n for n in ast.walk(source.tree) if isinstance(n, ast.Call)):
                if syntax.called(call) == function.name and len(call.args) > place >= 0:
                    given = call.args[place]
                    if isinstance(given, ast.Name):
                        yield given.id, source.scope_of(call)


def _kept_copied(statement: ast.stmt) -> list[ast.expr]:
    """What a statement of the edited file stores, without the copy that the edit has put in."""
    call = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
    given = list(call.args) if isinstance(call, ast.Call) and syntax.called(call) in KEEPING else []
    values = given if given else [statement.value] if isinstance(statement, ast.Assign) else []
    members = [part for value in values for part in _members(value)]
    return [_uncopied(part) for part in members]


def _uncopied(value: ast.expr) -> ast.expr:
    while isinstance(value, ast.Call) and syntax.called(value) in COPYING:
        value = value.func.value if isinstance(value.func, ast.Attribute) and not value.args else value.args[0]
    return value


# -- writes ---------------------------------------------------------------------------------------------------


def _writes(source: Source, function: Function) -> Iterator[Beside]:
    """Other arguments that the function writes and goes on to use."""
    arguments = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)} - {"self", "cls"}
    for statement in (n for n in ast.walk(function) if isinstance(n, ast.stmt)):
        written = written_by(statement)
        name = syntax.root_name(written) if written is not None else ""
        if written is None or name not in arguments or isinstance(written, ast.Attribute):
            continue
        if _is_used_after(source, function, statement, name):
            yield _at_entry(source, function, statement.lineno, name, f"{name} = {HELPER}.own_data({name})")


def _is_used_after(source: Source, function: Function, statement: ast.stmt, name: str) -> bool:
    """Else the function is called for what it writes."""
    later = (n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load))
    return any(source.start(node) >= source.end(statement) for node in later)


def _at_entry(source: Source, function: Function, line: int, name: str, text: str) -> Beside:
    copies, mends = (tuple(at_entry(source, function, one)) for one in (text, f"{name} = {name}.clone()"))
    return Beside(line, name, copies, mends)


def _class_attributes(source: Source, owner: ast.ClassDef) -> Iterator[Beside]:
    """Attributes of the class that its methods write: one memory for all objects."""
    shared = {name for s in owner.body if isinstance(s, (ast.Assign, ast.AnnAssign)) for name in syntax.stores(s)}
    constructor = _constructor(owner)
    for statement in (n for n in ast.walk(owner) if isinstance(n, ast.stmt) and source.function_of(n) is not None):
        written = written_by(statement)
        variable = syntax.variable_of(written) if written is not None else None
        if not isinstance(variable, ast.Attribute) or variable.attr not in shared:
            continue
        name = ast.unparse(variable)
        if not isinstance(variable.value, ast.Name) or variable.value.id != "self":
            continue
        text = f'if "{variable.attr}" not in vars(self): {name} = {HELPER}.own_data({name})'
        copies = syntax.insert_before(source, statement, text)
        mends = _in_constructor(source, constructor, f"{name} = {name}.clone()")
        yield Beside(statement.lineno, name, (copies,) if copies else (), (mends,) if mends else ())


def _in_constructor(source: Source, constructor: ast.AST | None, line: str) -> Edit | None:
    if not isinstance(constructor, Function):
        return None
    body = [s for s in constructor.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    calls = [s for s in body if isinstance(s, ast.Expr) and "super()" in ast.unparse(s)]
    if calls:
        return syntax.insert_after(source, calls[0], line)
    return syntax.insert_before(source, body[0], line) if body else None


def _defaults(source: Source, function: Function) -> Iterator[Beside]:
    """Defaults that are made once, for all calls."""
    positional = [*function.args.posonlyargs, *function.args.args]
    pairs = list(zip(positional[len(positional) - len(function.args.defaults) :], function.args.defaults, strict=True))
    named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    pairs += [(argument, default) for argument, default in named if default is not None]
    for argument, default in pairs:
        if isinstance(default, ast.Call):
            name, made = argument.arg, source.segment(default)
            entry = _at_entry(source, function, default.lineno, name, f"{name} = {HELPER}.own_default({name})")
            if entry.copies:
                [at] = entry.copies
                fresh = (
                    f"{source.indent(function.body[0])}{name} = {made} if {name} is None else {name}{source.newline}"
                )
                mends = (Edit(source.start(default), source.end(default), "None"), Edit(at.start, at.end, fresh))
                yield Beside(entry.line, name, entry.copies, mends)
