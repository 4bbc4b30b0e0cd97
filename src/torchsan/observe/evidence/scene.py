"""What all evidence is collected from: the write or the step that is happening, and who holds what at that moment."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType, ModuleType
from typing import Any

import torch

from torchsan.model import Place
from torchsan.model.events import Line, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.compiled.lines import LineSite
from torchsan.observe.constructors import constructor_of
from torchsan.observe.holders.extents import Extent, contents, extent_of
from torchsan.observe.holders.lineage import Ancestor, lineage
from torchsan.observe.holders.manner import Manner, manner_of
from torchsan.observe.holders.resolving import value_of
from torchsan.observe.holders.slots import Census
from torchsan.observe.objects import is_a, is_tensor
from torchsan.observe.refusals import callers_of, whole_statement, written_name
from torchsan.observe.sites import Site, frame_place
from torchsan.observe.tensors import memory_of

_detach = torch._C.TensorBase.detach


@dataclass
class Writing:
    """A write that is about to be made."""

    op: str
    site: Site
    tensor: torch.Tensor
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    original: Callable[..., Any] | None
    frame: FrameType
    frames: list[FrameType]
    seen: int
    census: Census = field(default_factory=Census)
    # Are the values of all operands known? Those that were made inside a compiled region are gone.
    known = True

    @cached_property
    def extent(self) -> Extent | None:
        return extent_of(self.tensor)

    @property
    def complete(self) -> bool:
        """Are the operands known? In the dispatcher only what is written is handed over."""
        return self.original is not None

    @property
    def compiled(self) -> bool:
        """Is the line in a function that no frame stands for? It was traced, and runs in compiled code."""
        return isinstance(self.site, LineSite)

    @cached_property
    def manner(self) -> Manner:
        found = manner_of(self.op, self.tensor, self.args)
        if self.complete or found is not Manner.TRANSFORMED or self._has_no_operands():
            return found
        return Manner.ACCUMULATED

    def _has_no_operands(self) -> bool:
        """Does the source show constants only, or no operands at all?"""
        if isinstance(self.node, ast.AugAssign):
            return _is_constant(self.node.value)
        if isinstance(self.node, ast.Call):
            if self.site.library is not None:
                return constructor_of(self.frame) is not None
            return all(_is_constant(part) for part in (*self.node.args, *(k.value for k in self.node.keywords)))
        return False

    @cached_property
    def before(self) -> int | None:
        return contents(self.tensor)

    def changed(self) -> bool:
        """After the write: are the values others than before?"""
        now = contents(self.tensor)
        return self.before is None or now is None or now != self.before

    @cached_property
    def target(self) -> Extent | None:
        """The bytes that are written: of `x[i] = v` those of `x[i]`."""
        if self.op != "__setitem__" or len(self.args) < 2:
            return self.extent
        try:
            with torch.no_grad():
                part = _detach(self.tensor)[self.args[1]]
        except Exception:
            return self.extent
        found = extent_of(part)
        return found if found is not None and self.extent is not None and self.extent.covers(found) else self.extent

    @cached_property
    def place(self) -> Place:
        return whole_statement(self.site.place)

    @property
    def line(self) -> Line:
        return Line(self.place, self.site.library_place)

    @cached_property
    def event(self) -> Write:
        return Write(self.op, "op", self.line, callers=callers_of(self.frame))

    @cached_property
    def file(self) -> syntax.File | None:
        return syntax.file_of(self.site.place.path)

    @cached_property
    def node(self) -> ast.AST | None:
        return self.file.at(self.site.place) if self.file else None

    @cached_property
    def written(self) -> ast.expr | None:
        """The expression whose memory the user's line writes; None when the write is inside a call."""
        if self.file is None or self.node is None or self.site.library is not None:
            return None
        found = syntax.written_expression(self.node, self.file)
        return self._what_it_views(found) if isinstance(found, ast.Call) else self._with_memory(found)

    def _with_memory(self, found: ast.expr | None) -> ast.expr | None:
        """`batch.data` where `batch` is no tensor: a property of tensors may be an attribute of somebody's own."""
        around = self.file.parents.get(found) if self.file is not None and found is not None else None
        if not isinstance(around, ast.Attribute) or is_tensor(value_of(found, self.top)):
            return found
        return around if is_tensor(value_of(around, self.top)) else found

    def _what_it_views(self, call: ast.Call) -> ast.expr:
        """`k` for `k.diagonal()`, if what `k` stands for has the memory that is written."""
        at: ast.expr = call
        while isinstance(at, ast.Call):
            owner = at.func.value if isinstance(at.func, ast.Attribute) else None
            inner = owner if owner is not None and not is_a(value_of(owner, self.top), ModuleType) else None
            following = inner or next(iter(at.args), None)
            if following is None:
                return call
            at = syntax.receiver(following)
        value = value_of(at, self.top)
        return at if is_tensor(value) and memory_of(value) == memory_of(self.tensor) else call

    @cached_property
    def lineage(self) -> list[Ancestor]:
        """Through what the line reaches the memory, out to its callers."""
        start, node = self.written, self.node
        if isinstance(node, ast.AugAssign):
            start = node.target
        elif isinstance(node, ast.Subscript):
            start = node
        elif isinstance(node, ast.Call) and start is None:  # a library writes an argument of this call
            passed = [*node.args, *(k.value for k in node.keywords)]
            start = next((a for a in passed if value_of(syntax.receiver(a), self.top) is self.tensor), None)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _ends_in(node.func.value, start):
            start = node.func.value
        return list(lineage(start, self.frames))

    @cached_property
    def name(self) -> str:
        return written_name(self.site.place)

    @property
    def top(self) -> FrameType:
        """The user's frame that writes, or that calls the library which does."""
        return self.frames[0]


def _ends_in(node: ast.expr, receiver: ast.expr | None) -> bool:
    return receiver is not None and syntax.receiver(node) is receiver


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant))


def call_of(frame: FrameType) -> tuple[ast.Call, syntax.File, Place] | None:
    """The call that a frame is waiting for."""
    at = frame_place(frame)
    file = syntax.file_of(at.path)
    node = file.at(at) if file else None
    if file is None or not isinstance(node, ast.Call):
        return None
    return node, file, at
