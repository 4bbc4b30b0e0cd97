"""Tensors that a custom function put on its `ctx` by itself: torch does not check whether they were written since."""

from __future__ import annotations

import ast
from functools import lru_cache
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from torchsan import compat
from torchsan.model.events import Line, Save
from torchsan.observe import expressions as syntax
from torchsan.observe import nodes
from torchsan.observe.holders.reading import reads_values
from torchsan.observe.ledger import Written
from torchsan.observe.objects import attributes_of, class_attribute, is_exactly, is_tensor, items_of
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import USER, kind_of, place_in, site_of
from torchsan.observe.stale import StaleFinder
from torchsan.observe.tensors import byte_range, memory_of, touches

MAX_NODES = 20_000
# The end of a write whose bounds nobody knows.
UNBOUNDED = Written._field_defaults["end"]
_storage_of = torch._C.TensorBase.untyped_storage


class Keepsakes:
    """Asked before each backward, in programs that have custom functions of their own."""

    def __init__(self, recorder: Recorder, stale: StaleFinder) -> None:
        self.recorder = recorder
        self.stale = stale
        # How many functions there were when they were last gone through, and those whose backward reads attributes.
        self._known: str | None = None
        self._readers: set[int] = set()

    def look(self, roots: list[Any], frame: FrameType) -> None:
        """Tell of what was written between the forward that kept it and this backward."""
        known = compat.functions_made()
        if known is None or known != self._known:
            self._known = known
            self._readers = _readers()
        if not self._readers:
            return
        for number, node in enumerate(nodes.walk(roots)):
            if number > MAX_NODES:
                return
            function = class_attribute(type(node), "_forward_cls")
            if id(function) in self._readers:
                self._judge(node, function, frame)

    def _judge(self, node: Any, function: type, frame: FrameType) -> None:
        sequence, read = nodes.sequence(node), _read_by(function)
        self.recorder.ledger.pull()
        for name, tensor in kept_on(node):
            memory = memory_of(tensor) if name.partition("[")[0] in read else None
            if memory is None:
                continue
            writes = [w for w in self.recorder.ledger.after(memory, sequence, None) if _hit(tensor, w)]
            if writes:
                codes, names = _run_by_forward(function)
                # A forward may write what it keeps: that comes before any other node, and its backward knows of it.
                writes = [
                    w
                    for w in writes
                    if w.before > sequence + 1 or not (w.site.code in codes or w.site.code.co_name in names)
                ]
            if not writes:
                continue
            save = Save(
                nodes.op_name(node), f"ctx.{name}", _line_that_keeps(function, name) or nodes.line_of_node(node)
            )
            needed = site_of(frame)
            self.recorder.emit(self.stale.event_of(memory, save, writes, [], needed, frame, silent=True))


def _readers() -> set[int]:
    """The functions, by identity, whose backward looks at what they kept."""
    # Each function has one class for its nodes right below this one, however deep itself was derived.
    kinds = type.__subclasses__(torch.autograd.function.BackwardCFunction)
    functions = [class_attribute(kind, "_forward_cls") for kind in kinds]
    return {id(function) for function in functions if isinstance(function, type) and _read_by(function)}


def _hit(tensor: torch.Tensor, write: Written) -> bool:
    """Did the write surely change elements of the tensor? Without known bounds only if it is all there is."""
    if write.end < UNBOUNDED:
        return touches(tensor, write.start, write.end)
    return byte_range(tensor) == (0, _storage_of(tensor).nbytes())


def kept_on(context: Any) -> list[tuple[str, torch.Tensor]]:
    """Tensors that forward put on the context, not through `save_for_backward`, by which torch would notice."""
    found = []
    for name, value in attributes_of(context).items():
        for part, item in [("", value), *items_of(value, 64)]:
            if is_tensor(item):
                found.append((f"{name}{part}", item))
    return found


def _method(function: type, name: str) -> FunctionType | None:
    found = class_attribute(function, name)
    found = found.__func__ if is_exactly(found, (staticmethod, classmethod)) else found
    return found if type(found) is FunctionType and kind_of(found.__code__) == USER else None


def _code_of(function: type, name: str) -> CodeType | None:
    found = _method(function, name)
    return found.__code__ if found is not None else None


def _run_by_forward(function: type) -> tuple[set[CodeType], set[str]]:
    """The code that its forward may run: as far as it is known, and by the names of what is called on objects."""
    codes: set[CodeType] = set()
    names: set[str] = set()
    todo = [one for method in ("forward", "setup_context") if (one := _method(function, method)) is not None]
    while todo:
        one = todo.pop()
        if one.__code__ in codes:
            continue
        codes.add(one.__code__)
        names.update(one.__code__.co_names)
        todo += [other for name in one.__code__.co_names if type(other := one.__globals__.get(name)) is FunctionType]
    return codes, names


def _read_by(function: type) -> frozenset[str]:
    code = _code_of(function, "backward")
    return _values_read(code) if code is not None else frozenset()


@lru_cache(maxsize=512)
def _values_read(code: CodeType) -> frozenset[str]:
    """The attributes of its first argument whose values this function looks at."""
    file = syntax.file_of(code.co_filename)
    definition = file.definition(code) if file is not None else None
    if file is None or definition is None or not code.co_varnames:
        return frozenset()
    context = code.co_varnames[0]
    loads = (n for n in ast.walk(definition) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load))
    own = (node for node in loads if isinstance(node.value, ast.Name) and node.value.id == context)
    return frozenset(node.attr for node in own if _looked_at(node, file, definition))


def _looked_at(node: ast.Attribute, file: syntax.File, definition: ast.FunctionDef) -> bool:
    names = syntax.assigned_targets(node, file)
    if not names:
        return reads_values(node, file)
    return any(
        isinstance(read, ast.Name) and read.id in names and isinstance(read.ctx, ast.Load) and reads_values(read, file)
        for read in ast.walk(definition)
    )


def _line_that_keeps(function: type, name: str) -> Line | None:
    """`ctx.x = x` in its forward, or in `setup_context`."""
    for method in ("forward", "setup_context"):
        code = _code_of(function, method)
        file = syntax.file_of(code.co_filename) if code is not None else None
        definition = file.definition(code) if file is not None and code is not None else None
        for node in ast.walk(definition) if definition is not None else ():
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and node.attr == name.partition("[")[0]
            ):
                statement = file.statement(node) if file is not None else None
                if statement is not None and file is not None and code is not None:
                    return Line(file.place(statement, place_in(code, 0)))
    return None
