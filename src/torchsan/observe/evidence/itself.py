"""Memory that is copied or blended onto itself: a restore that restores nothing, an average of a thing with itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch

from torchsan.model.events import AliasedSnapshot, Event, Line, Memory
from torchsan.observe import expressions as syntax
from torchsan.observe.evidence.scene import Writing
from torchsan.observe.holders.census import Holding
from torchsan.observe.holders.extents import extent_of
from torchsan.observe.holders.storing import stored_at
from torchsan.observe.holders.takings import Takings
from torchsan.observe.objects import is_a, is_tensor, sequence_of

BLENDING = ("add_", "sub_", "lerp_", "mul_", "div_", "__iadd__", "__isub__", "_foreach_lerp_", "_foreach_add_")
COPYING = ("copy_", "__setitem__", "_foreach_copy_")


def events_of(writing: Writing, takings: Takings) -> Iterator[Event]:
    """Told when one memory goes under two names, one of which was taken before the memory changed."""
    if writing.op not in (*BLENDING, *COPYING) or writing.extent is None:
        return
    if not any(extent_of(value) == writing.target for value in _tensors(writing.args[1:])):
        return
    names = _names(writing)
    if names is None or names[0] == names[1]:
        return
    kept = [h for h in writing.census.holdings if _is_kept(h, writing) and takings.changed_since(h)]
    if not kept:
        return
    taken = stored_at(min(kept, key=lambda h: h.step.kind != "item").step, writing.frames)
    yield AliasedSnapshot(Memory(names[1]), taken, writing.event, Line(writing.site.place), "itself", names[0])


def _is_kept(holding: Holding, writing: Writing) -> bool:
    """A slot beside the parameter's own: an item, a local name, an attribute that is no module's parameter."""
    if holding.extent != writing.target:
        return False
    return holding.step.kind in ("item", "local", "cell", "global") or not is_a(holding.value, torch.nn.Parameter)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if is_tensor(value):
            yield value
        else:
            yield from _tensors(sequence_of(value)[:8])


def _names(writing: Writing) -> tuple[str, str] | None:
    """What the line calls the two: the receiver and the operand."""
    node = writing.node
    if writing.site.library is not None and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        # `net.load_state_dict(kept)`
        return (ast.unparse(node.func.value), ast.unparse(node.args[0])) if node.args else None
    if isinstance(node, ast.AugAssign):
        pair: list[ast.expr] = [node.target, node.value]
    elif isinstance(node, ast.Subscript) and writing.file is not None:
        statement = writing.file.statement(node)
        if not isinstance(statement, ast.Assign):
            return None
        pair = [node, statement.value]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not writing.op.startswith("_"):
        operand = next((a for a in node.args), next((k.value for k in node.keywords if k.arg == "other"), None))
        if operand is None:
            return None
        pair = [node.func.value, operand]
    elif isinstance(node, ast.Call) and len(node.args) >= 2:
        pair = list(node.args[:2])
    else:
        return None
    first, second = (ast.unparse(syntax.receiver(part)) for part in pair)
    return first, second
