"""Who else calls what was edited, by whatever name, and counts on what it wrote."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from torchsan.errors import UsageError
from torchsan.fix.came import Came, Range, innermost, scope
from torchsan.fix.carriers import Carriers
from torchsan.fix.edited import Edited
from torchsan.fix.kindred import relies_on_write
from torchsan.fix.linked import names
from torchsan.fix.rewrites import syntax
from torchsan.fix.source import Function, Source

MOST_FILES = 200
MOST_BYTES = 400_000
# Functions that call what they are given.
CALLING = {"map", "filter", "reduce", "starmap", "checkpoint", "submit", "register_forward_hook"}


def relied_on(edited: Edited) -> str:
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
            return f"{source.where(node)}, which did not run, calls {shown} for what it writes"
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
