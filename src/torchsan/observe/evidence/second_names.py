"""Two names of one function for one tensor: written by the one, and read by the other as if it were another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType

import torch

from torchsan.model.events import AliasedSnapshot, Event, Line, Memory
from torchsan.observe import expressions as syntax
from torchsan.observe.evidence.arguments import arguments_of, passed_to
from torchsan.observe.evidence.scene import Writing, call_of
from torchsan.observe.holders.dotted import conditional_stores
from torchsan.observe.holders.extents import extent_of
from torchsan.observe.holders.reading import Read, next_reads
from torchsan.observe.holders.resolving import value_of
from torchsan.observe.names import local_names
from torchsan.observe.objects import is_tensor
from torchsan.observe.sites import frame_place


def second_name(writing: Writing) -> Iterator[Event]:
    """`old = x; x.add_(1); x - old`: both names are read afterwards as if they were two tensors."""
    frame = writing.top
    names = {n: v for n, v in local_names(frame).items() if is_tensor(v)}
    written = _written_names(writing, names)
    if not written:
        return
    parameters = set(arguments_of(frame))
    for handle in sorted(written):
        for other, value in names.items():
            if other in written or value is not names[handle] or other.startswith("_"):
                continue
            newer = "" if other in parameters and handle in parameters else _second_of(writing, other, handle)
            if not newer:
                continue
            reads = next_reads(frame, other, after_loops=True)
            if not reads or not _goes_on(writing, handle):
                continue
            older = handle if newer == other else other
            yield AliasedSnapshot(
                Memory(newer), binding_line(frame, newer), writing.event, Line(reads[0].place), "alias", older,
                certainty="possible" if _is_return(reads[0]) and not value_used(writing) else "proved",
            )  # fmt: skip


def _written_names(writing: Writing, names: dict[str, torch.Tensor]) -> set[str]:
    """The names by which the line reaches what it writes."""
    if isinstance(writing.written, ast.Name):
        return {writing.written.id} & set(names)
    if writing.written is not None:
        return set()
    found = call_of(writing.top)
    passed = [a.id for a in passed_to(found[0]) if isinstance(a, ast.Name)] if found is not None else []
    return {n for n in passed if n in names and extent_of(names[n]) == writing.extent}


def _second_of(writing: Writing, one: str, other: str) -> str:
    """The name that was bound by nothing but the other, or of two conversions that had nothing to convert the later.

    Empty where neither was given by the other.
    """
    file, node = writing.file, writing.node
    assert file is not None
    assert node is not None
    made_of: dict[str, tuple[str, int]] = {}
    for name, source in ((one, other), (other, one)):
        found = syntax.binding(file, file.function(node), name, writing.site.place.line)
        if found is None or not isinstance(found[0], (ast.Assign, ast.AnnAssign)):
            continue
        values = [found[1], *(found[1].elts if isinstance(found[1], ast.Tuple) else ())]
        if any(isinstance(value, ast.Name) and value.id == source for value in values):
            return name
        converted = _converted(found[1])
        if converted == source:
            return name
        made_of[name] = converted, found[0].lineno
    if len(made_of) < 2 or not made_of[one][0] or made_of[one][0] != made_of[other][0]:
        return ""
    return max((one, other), key=lambda name: made_of[name][1])


def _converted(value: ast.expr) -> str:
    """`x` for `x.float()` or `x.to(device)`; empty for anything else."""
    method = value.func if isinstance(value, ast.Call) else None
    if not isinstance(method, ast.Attribute) or method.attr.endswith("_"):
        return ""
    return method.value.id if isinstance(method.value, ast.Name) else ""


def _goes_on(writing: Writing, handle: str) -> bool:
    """Is the written value read afterwards, by its name or as the value of the expression that wrote it?"""
    return value_used(writing) or bool(next_reads(writing.top, handle, after_loops=True))


def value_used(writing: Writing) -> bool:
    file, node = writing.file, writing.node
    assert file is not None
    assert node is not None
    if isinstance(node, ast.stmt) or not isinstance(node, ast.Call):
        return False
    return not isinstance(file.parents.get(node), ast.Expr)


def _is_return(read: Read) -> bool:
    return isinstance(read.file.parents.get(read.node), ast.Return)


def binding_line(frame: FrameType, name: str) -> Line | None:
    at = frame_place(frame)
    file = syntax.file_of(at.path)
    node = file.at(at) if file else None
    found = syntax.binding(file, file.function(node), name, at.line) if file and node is not None else None
    return Line(file.place(found[0], at)) if file and found else None


# -- a store that changes nothing ------------------------------------------------------------------


def stored_back(writing: Writing) -> Iterator[Event]:
    """`new = self.at; new += noise; if accepted: self.at = new`: it was `self.at` that was moved, accepted or not."""
    file, node, written = writing.file, writing.node, writing.written
    if file is None or node is None or not isinstance(written, (ast.Name, ast.Attribute)):
        return
    own = ast.unparse(written)
    for statement, target, value in conditional_stores(file, node):
        texts = {ast.unparse(target), ast.unparse(value)}
        if own not in texts or len(texts) != 2:
            continue
        if any(extent_of(value_of(side, writing.top)) != writing.extent for side in (target, value)):
            continue
        taken = _made_one(writing, texts)
        if taken is not None:
            other = next(text for text in texts if text != own)
            at = file.place(statement, writing.site.place)
            yield AliasedSnapshot(Memory(own), taken, writing.event, Line(at), "alias", other)
            return


def _made_one(writing: Writing, texts: set[str]) -> Line | None:
    """The statement above that bound the one to what the other has."""
    file, node = writing.file, writing.node
    if file is None or node is None:
        return None
    for statement in file.within(file.function(node)):
        if not isinstance(statement, ast.Assign) or statement.lineno > writing.site.place.line:
            continue
        if {ast.unparse(statement.targets[0]), ast.unparse(syntax.receiver(statement.value))} == texts:
            return Line(file.place(statement, writing.site.place))
    return None
