"""Through what name a line changes stored data, and where what it has changed is handed on as a value."""

from __future__ import annotations

import ast

from torchsan.model import Place
from torchsan.observe.evidence import ownmade
from torchsan.observe.evidence.scene import Writing
from torchsan.observe.holders.reading import next_reads
from torchsan.observe.holders.resolving import root_name

_OWNERS = ("self", "cls")


def goes_by(writing: Writing) -> ast.Name | ast.Attribute | None:
    """The function's own name for stored data that the line changes; None where it changes it as its owner.

    `image /= 255` works on what the function took from somewhere, as does `example.image /= 255`; `self.level *= 0.9`
    is how an object moves on. What a data loader has asked for is a value, by whatever name the function has it.
    """
    written = writing.written
    if isinstance(written, ast.Name):
        return written
    if isinstance(written, ast.Attribute) and (root_name(written) not in _OWNERS or ownmade.is_fetched(writing.top)):
        return written if root_name(written) else None
    return None


def handed_on_at(writing: Writing, name: ast.Name | ast.Attribute, as_value: bool = True) -> Place | None:
    """Where the changed value is read behind the line, or by the statement of the line itself.

    `as_value`: is a name's also what `return x.sub_(mean)` hands on?
    """
    if isinstance(name, ast.Name):
        # What a loop does channel by channel is read behind it.
        reads = next_reads(writing.top, name.id, after_loops=True)
        if reads:
            return reads[0].place
    file, node = writing.file, writing.node
    statement = file.statement(node) if file is not None and node is not None else None
    if file is None or node is None or statement is None:
        return None
    as_value = as_value or not isinstance(name, ast.Name)
    if as_value and isinstance(node, ast.Call) and not isinstance(statement, ast.Expr):
        return file.place(statement, writing.site.place)  # `return self.images[i].div_(255)`
    if isinstance(name, ast.Name):
        return None
    text, owner = ast.unparse(name), ast.unparse(name.value)
    for later in file.within(file.function(node)):
        if not isinstance(later, (ast.Name, ast.Attribute)) or not isinstance(later.ctx, ast.Load):
            continue
        if later.lineno <= (statement.end_lineno or 0):
            continue
        returned = owner not in _OWNERS and isinstance(file.statement(later), ast.Return)
        if ast.unparse(later) == text or (returned and ast.unparse(later) == owner):
            return file.place(later, writing.site.place)
    return None
