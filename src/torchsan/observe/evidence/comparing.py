"""Which calls compare two values, and what it says of the author that they do."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal

import torch
import torch.nn.functional as F

from torchsan.observe import expressions as syntax
from torchsan.observe.objects import is_tensor
from torchsan.observe.patches import Patches
from torchsan.observe.sites import place_in

# A distance or a ratio of one memory to itself is the same whatever it holds, and so is the larger of the two. Whether
# two are equal may also be asked to see that they are one.
Comparison = Literal["distance", "order", "equality"]
METHODS: dict[Comparison, tuple[str, ...]] = {
    "distance": ("__sub__", "__rsub__", "__truediv__", "sub", "subtract", "div", "divide", "dist"),
    "order": ("__lt__", "__le__", "__gt__", "__ge__", "lt", "le", "gt", "ge"),
    "equality": ("__eq__", "__ne__", "eq", "ne", "equal", "allclose", "isclose"),
}
DISTANCES: tuple[tuple[Any, Comparison, tuple[str, ...]], ...] = (
    (torch, "distance", ("sub", "subtract", "div", "divide", "dist", "cdist", "cosine_similarity")),
    (torch, "order", ("lt", "le", "gt", "ge", "less", "greater")),
    (torch, "equality", ("eq", "ne", "equal", "allclose", "isclose")),
    (F, "distance", ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "cosine_similarity", "pairwise_distance")),
    (F, "distance", ("kl_div",)),
)
Compared = Callable[[torch.Tensor, torch.Tensor, Comparison], None]


def watch(patches: Patches, compared: Compared) -> None:
    """Call back at every comparison of two tensors."""
    for kind, names in METHODS.items():
        for name in names:
            patches.set(torch.Tensor, name, _wrapped(getattr(torch.Tensor, name), kind, compared))
    for owner, kind, names in DISTANCES:
        for name in names:
            patches.set(owner, name, _wrapped(getattr(owner, name), kind, compared))


def _wrapped(original: Callable[..., Any], kind: Comparison, compared: Compared) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        if len(args) >= 2 and is_tensor(args[0]) and is_tensor(args[1]):
            compared(args[0], args[1], kind)
        return original(*args, **kwargs)

    function.__name__ = getattr(original, "__name__", "function")
    function.__doc__ = original.__doc__
    function.__wrapped__ = original  # type: ignore[attr-defined]
    return function


def operands(frame: FrameType) -> tuple[ast.expr, ast.expr] | None:
    """The two sides of the comparison that the frame is at."""
    place = place_in(frame.f_code, frame.f_lasti)
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    if isinstance(node, ast.BinOp):
        return node.left, node.right
    if isinstance(node, ast.Compare):
        return node.left, node.comparators[0]
    if not isinstance(node, ast.Call):
        return None
    method = isinstance(node.func, ast.Attribute) and len(node.args) == 1
    pair = [node.func.value, node.args[0]] if method else list(node.args[:2])  # type: ignore[attr-defined]
    return (pair[0], pair[1]) if len(pair) == 2 else None


def decides(frame: FrameType) -> bool:
    """Does the program take one way or another by the result? It may be asked only to be shown, or to be sure."""
    place = place_in(frame.f_code, frame.f_lasti)
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    if file is None or node is None:
        return False
    inner = node
    for outer in file.up(node):
        if isinstance(outer, (ast.If, ast.While, ast.IfExp)) and outer.test is inner:
            return not _complains(outer)
        if isinstance(outer, ast.stmt):
            return False
        inner = outer
    return False


def _complains(statement: ast.AST) -> bool:
    """`if not equal(a, b): raise`: a check."""
    return isinstance(statement, ast.If) and isinstance(statement.body[0], ast.Raise)
