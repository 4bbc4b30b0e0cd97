"""Gradients that cannot flow: a detached term that only shifts the loss, a loss without a graph."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from torchsan.model import Place
from torchsan.model.events import GradientCut, Line, Memory
from torchsan.observe import expressions as syntax
from torchsan.observe import nodes
from torchsan.observe.objects import is_honest, is_tensor
from torchsan.observe.patches import Patches
from torchsan.observe.sites import USER, Site, kind_of, site_of

if TYPE_CHECKING:
    from torchsan.observe.recorder import Recorder

# Through these a constant stays a constant: whatever is added never meets a gradient.
ADDITIVE = {"add", "sub", "neg", "mean", "sum", "view", "reshape", "squeeze", "unsqueeze", "to_copy", "rsub"}
SCALING = {"mul", "div"}
CUTTING = ("detach", "item", "data", "tolist", "numpy")
LOOKS = 3
NON_LEAF = "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed"


class CutFinder:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.sites: set[Site] = set()
        self._looked: dict[Site, int] = {}

    def install(self, patches: Patches) -> None:
        patches.set(torch.Tensor, "detach", self._detach(torch.Tensor.detach))
        patches.set(torch.Tensor, "item", self._detach(torch.Tensor.item))
        patches.set(torch, "tensor", self._rewrapping(torch.tensor))

    def _detach(self, original: Callable[..., Any]) -> Callable[..., Any]:
        sites = self.sites

        def detach(tensor: Any) -> Any:
            if _requires_grad(tensor):
                sites.add(site_of(sys._getframe(1)))
            return original(tensor)

        detach.__doc__ = original.__doc__
        return detach

    def _rewrapping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        sites = self.sites

        def tensor(*args: Any, **kwargs: Any) -> Any:
            if args and is_tensor(args[0]) and _requires_grad(args[0]):
                sites.add(site_of(sys._getframe(1)))
            return original(*args, **kwargs)

        tensor.__doc__ = original.__doc__
        return tensor

    def heard(self, message: Any, frame: FrameType | None) -> bool:
        """A warning of torch's that is a finding of ours; it is shown as well."""
        if frame is not None and kind_of(frame.f_code) == USER and NON_LEAF in _text(message.message):
            self._non_leaf_grad(frame)
        return False

    def _non_leaf_grad(self, frame: FrameType) -> None:
        site = site_of(frame)
        file = syntax.file_of(site.place.path)
        node = file.at(site.place) if file else None
        name = syntax.text_of(node.value) if isinstance(node, ast.Attribute) else ""
        self.recorder.emit(GradientCut(Memory(name), Line(site.place), "non-leaf-grad"))

    # -- a detached value that is only added to the loss --------------------------------------------

    def constant_terms(self, roots: list[Any], backward: Site) -> None:
        """Walk down from the loss through sums; look at the terms that carry no gradient."""
        looked = self._looked.get(backward, 0)
        if looked >= LOOKS:
            return
        self._looked[backward] = looked + 1
        detached = {site.place for site in self.sites if site.library is None}
        todo, seen = list(roots), 0
        while todo and seen < 64:
            node, seen = todo.pop(), seen + 1
            op = nodes.op_name(node)
            parents = [parent for parent, _ in node.next_functions]
            if op in ("add", "sub", "rsub") and len(parents) == 2 and None in parents:
                self._look_at_term(node, parents, detached, backward)
            if op in ADDITIVE or (op in SCALING and None in parents):
                todo.extend(parent for parent in parents if parent is not None)

    def _look_at_term(self, node: Any, parents: list[Any], detached: set[Place], backward: Site) -> None:
        site = nodes.site_of_node(node)
        if site is None or site.library is not None:
            return
        file = syntax.file_of(site.place.path)
        at = file.at(site.place) if file else None
        if file is None or not isinstance(at, ast.BinOp):
            return
        term = at.left if parents[0] is None else at.right
        cut = self._cut_in(term, file, site.place, detached)
        if cut is None:
            return
        expression, place = cut
        name = _cut_value(expression)
        line = Line(place)
        self.recorder.emit(
            GradientCut(Memory(name), line, "constant-term", Line(backward.place), syntax.text_of(expression))
        )

    def _cut_in(
        self, term: ast.expr, file: syntax.File, near: Place, detached: set[Place]
    ) -> tuple[ast.Call, Place] | None:
        """The `.detach()` call that this term is, or is bound to, if it cut a gradient in this run."""
        if isinstance(term, ast.Name):
            found = syntax.binding(file, file.function(term), term.id, term.lineno)
            if found is None or not isinstance(found[0], ast.Assign):
                return None
            term = found[1]
        while isinstance(term, (ast.UnaryOp, ast.BinOp)):
            if isinstance(term, ast.UnaryOp):
                term = term.operand
            elif isinstance(term.op, (ast.Mult, ast.Div)):
                term = term.right if isinstance(term.left, ast.Constant) else term.left
            else:
                return None
        while isinstance(term, ast.Call) and isinstance(term.func, ast.Attribute) and term.func.attr in ("mean", "sum"):
            term = term.func.value
        if not isinstance(term, ast.Call):
            return None
        place = file.place(term, near)
        return (term, place) if any(_same_spot(place, other) for other in detached) else None

    # -- a loss without a graph ---------------------------------------------------------------------

    def no_graph(self, frame: Any) -> list[Any]:
        site = site_of(frame)
        file = syntax.file_of(site.place.path)
        node = file.at(site.place) if file else None
        name, cut, by = "", None, ""
        if file is not None and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver = node.func.value
            name = syntax.text_of(receiver)
            found = _cutting_expression(receiver, file, node)
            if found is not None:
                by, cut = syntax.text_of(found), Line(file.place(found, site.place))
        return self.recorder.emit(GradientCut(Memory(name), cut, "no-graph", Line(site.place), by))


def _requires_grad(tensor: Any) -> bool:
    """Without asking a subclass or a mode of the program's, whose answer may be anything."""
    with torch._C.DisableTorchFunction():
        return is_tensor(tensor) and is_honest(type(tensor)) and tensor.requires_grad


def _text(warning: UserWarning) -> str:
    """What torch warns with; a warning of the user's own class is not asked."""
    return str(warning) if type(warning) is UserWarning else ""


def _cut_value(expression: ast.Call) -> str:
    """`q` for `q.detach()`, `q.item()` and `torch.tensor(q)`."""
    if isinstance(expression.func, ast.Attribute) and expression.func.attr in CUTTING:
        return syntax.text_of(expression.func.value)
    return syntax.text_of(expression.args[0]) if expression.args else syntax.text_of(expression)


def _same_spot(one: Place, other: Place) -> bool:
    return (one.path, one.line, one.column, one.end_column) == (
        other.path,
        other.line,
        other.column,
        other.end_column,
    )


def _cutting_expression(receiver: ast.expr, file: syntax.File, at: ast.AST, depth: int = 4) -> ast.expr | None:
    """Follow a value back to the expression that dropped its graph."""
    for node in ast.walk(receiver):
        if isinstance(node, ast.Call):
            function = syntax.text_of(node.func)
            if function in ("torch.tensor", "torch.as_tensor", "torch.Tensor", "torch.FloatTensor", "float"):
                return node
            if isinstance(node.func, ast.Attribute) and node.func.attr in CUTTING:
                return node
        if isinstance(node, ast.Attribute) and node.attr == "data" and isinstance(node.ctx, ast.Load):
            return node
    if depth == 0:
        return None
    for name in (n.id for n in ast.walk(receiver) if isinstance(n, ast.Name)):
        found = syntax.binding(file, file.function(at), name, getattr(at, "lineno", 0))
        if found is not None and isinstance(found[0], ast.Assign) and found[0] is not file.statement(at):
            deeper = _cutting_expression(found[1], file, found[0], depth - 1)
            if deeper is not None:
                return deeper
    return None
