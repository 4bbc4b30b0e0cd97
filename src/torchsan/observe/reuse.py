"""Explains a graph that was used twice: which edge leads from the new graph into the one that is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchsan import compat
from torchsan.model.events import GraphReused, Line, Memory
from torchsan.observe import nodes
from torchsan.observe.names import variables
from torchsan.observe.objects import is_tensor
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import site_of, user_frames


def explain_reuse(
    recorder: Recorder, roots: list[Any], frame: Any, first: Line | None, began: int | None = None
) -> list[Any]:
    """`first`: the backward that released the graph, as far as known; `began`: when it began.

    The pass that fails has released what it came through before: only what is older can have been used up.
    """
    released = [node for node in nodes.walk(roots) if nodes.is_released(node)]
    old = [node for node in released if began is not None and 0 <= nodes.sequence(node) < began]
    if began is None or len(old) == len(released):
        at = _edge(roots, lambda node: not nodes.is_released(node), set(released))
        return _tell(recorder, at or released[0], frame, first) if released else []
    at = _edge(roots, lambda node: not 0 <= nodes.sequence(node) < began, set(old))
    return _tell(recorder, at or (old or released)[0], frame, first)


def _edge(roots: list[Any], is_new: Callable[[Any], bool], used: set[Any]) -> Any:
    """The node of the old graph that the new one was built upon."""
    for node in nodes.walk(roots):
        if not is_new(node):
            continue
        for parent, _ in node.next_functions:
            if parent is None or is_new(parent):
                continue
            if parent in used or any(one in used for one in nodes.walk([parent])):
                return parent
    return None


def _tell(recorder: Recorder, node: Any, frame: Any, first: Line | None) -> list[Any]:
    frames = user_frames(frame)
    carried = next((n for n, v in variables(frames) if is_tensor(v) and compat.grad_fn_of(v) is node), None)
    site = site_of(frame)
    return recorder.emit(
        GraphReused(
            op=nodes.op_name(node),
            line=nodes.line_of_node(node),
            needed=Line(site.place, site.library_place),
            first=first,
            carried=Memory(carried) if carried else None,
        )
    )
