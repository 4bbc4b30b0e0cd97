"""A container copied without its tensors, or with a second name: written by the one, read by the other as of old."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchsan.model import Place
from torchsan.model.events import AliasedSnapshot, Event, Line, Memory
from torchsan.observe import expressions as syntax
from torchsan.observe.evidence.scene import Writing
from torchsan.observe.holders.extents import extent_of
from torchsan.observe.holders.lineage import lineage
from torchsan.observe.holders.reading import next_reads, reads_values
from torchsan.observe.holders.resolving import value_of
from torchsan.observe.holders.slots import Holding, Step
from torchsan.observe.holders.takings import Takings
from torchsan.observe.objects import is_a, is_tensor, sequence_of

MAX_ITEMS = 256
_COPYING = ("list", "dict", "tuple", "copy", "OrderedDict")


@dataclass(slots=True)
class _Pair:
    """A name that this function has given to a copy of a container, and what it copied."""

    name: str
    copy: Any
    source: ast.expr
    original: Any
    made: ast.stmt


def operand_of_old(writing: Writing, takings: Takings) -> Iterator[Event]:
    """`new = list(old)`; `new[i] -= old[j]`, where `old[j]` has been changed by way of `new` as well."""
    for pair in _pairs(writing) if writing.manner.reads else ():
        used = _read_beside(writing, pair, takings)
        if used is not None:
            yield _told(writing, pair, used)
            return


def read_as_of_old(writing: Writing) -> Iterator[Event]:
    """`old = dict(new)`; `new[k] += 1`, and a statement behind reads `new[k]` and `old[k]` as two values."""
    for pair in _pairs(writing):
        used = _read_behind(writing, pair)
        if used is not None:
            yield _told(writing, pair, used)
            return


def _told(writing: Writing, pair: _Pair, used: Place) -> Event:
    assert writing.file is not None
    taken = Line(writing.file.place(pair.made, writing.place))
    source = syntax.text_of(pair.source)
    return AliasedSnapshot(Memory(pair.name), taken, writing.event, Line(used), "alias", source)


def _pairs(writing: Writing) -> Iterator[_Pair]:
    """Copies of the container by which the line comes, and the container that was copied to the one."""
    file, frame = writing.file, writing.top
    if file is None or writing.node is None or is_a(writing.tensor, torch.nn.Parameter):
        return
    function = file.function(writing.node)
    through = [a.value for a in writing.lineage]
    for statement in file.within(function):
        if not isinstance(statement, ast.Assign) or statement.lineno >= writing.site.place.line:
            continue
        target, source = statement.targets[0], _copied(statement.value)
        if not isinstance(target, ast.Name) or source is None:
            continue
        found = syntax.binding(file, function, target.id, writing.site.place.line)
        if found is None or found[0] is not statement:
            continue
        copy, original = value_of(target, frame), value_of(source, frame)
        if not any(value is copy or value is original for value in through):
            continue
        if _place_in(copy, writing.tensor) is not None and _place_in(original, writing.tensor) is not None:
            yield _Pair(target.id, copy, source, original, statement)


def _copied(value: ast.expr) -> ast.expr | None:
    """`x` for `x`, `list(x)`, `x[:]`, `x.copy()`, `[*x]`, `{**x}`, `copy.copy(x)` and comprehensions over all of it."""
    if isinstance(value, (ast.Name, ast.Attribute)):
        return value
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
        whole = value.slice.lower is None and value.slice.upper is None and value.slice.step is None
        return value.value if whole else None
    if isinstance(value, ast.List) and len(value.elts) == 1 and isinstance(value.elts[0], ast.Starred):
        return value.elts[0].value
    if isinstance(value, ast.Dict) and value.keys == [None]:
        return value.values[0]
    if isinstance(value, (ast.ListComp, ast.DictComp)) and len(value.generators) == 1:
        generator = value.generators[0]
        return None if generator.ifs else _iterated(generator.iter)
    if isinstance(value, ast.Call) and syntax.text_of(value.func).rpartition(".")[2] in _COPYING:
        if value.args:
            return value.args[0] if len(value.args) == 1 else None
        return value.func.value if isinstance(value.func, ast.Attribute) else None
    return None


def _iterated(node: ast.expr) -> ast.expr:
    """`x` for `x.items()` and `x.values()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("items", "values"):
        return node.func.value
    return node


def _place_in(container: Any, tensor: torch.Tensor) -> Any:
    """The key or index of this very tensor; None when it is not there."""
    if is_a(container, dict):
        held: Iterable[tuple[Any, Any]] = dict.items(container)
    else:
        held = enumerate(sequence_of(container)[:MAX_ITEMS])
    return next((key for key, item in held if item is tensor), None)


def _read_beside(writing: Writing, pair: _Pair, takings: Takings) -> Place | None:
    """An operand of the write comes by the other container, and was changed since the two were one."""
    by_copy = any(a.value is pair.copy for a in writing.lineage)
    own, other = (pair.copy, pair.original) if by_copy else (pair.original, pair.copy)
    if own is other or writing.file is None:
        return None
    for name in _operand_names(writing.node):
        value = value_of(name, writing.top)
        if not is_tensor(value) or value is writing.tensor:
            continue
        key, extent = _place_in(own, value), extent_of(value)
        if key is None or extent is None or not any(a.value is other for a in lineage(name, writing.frames)):
            continue
        slot = Holding(Step(None, "", "item", id(own), key), value, extent)
        if takings.changed_since(slot):
            return writing.file.place(name, writing.place)
    return None


def _operand_names(node: ast.AST | None) -> list[ast.expr]:
    parts: list[ast.expr] = []
    if isinstance(node, ast.AugAssign):
        parts = [node.value]
    elif isinstance(node, ast.Call):
        parts = [*node.args, *(k.value for k in node.keywords)]
    return [inner for part in parts for inner in ast.walk(part) if isinstance(inner, (ast.Name, ast.Subscript))]


def _read_behind(writing: Writing, pair: _Pair) -> Place | None:
    """A later statement reads this entry of both, by the one name and by the other."""
    file = writing.file
    for read in next_reads(writing.top, pair.name, loops=True) if file is not None else ():
        statement = read.file.statement(read.node)
        entries = [part for part in ast.walk(statement) if isinstance(part, ast.Subscript)] if statement else []
        entries = [part for part in entries if isinstance(part.ctx, ast.Load) and reads_values(part, read.file)]
        entries = [part for part in entries if value_of(part, writing.top) is writing.tensor]
        roots = {ast.unparse(part.value) for part in entries}
        if pair.name in roots and ast.unparse(pair.source) in roots:
            return read.place
    return None
