"""Explains a graph that was used twice: which edge leads from the new graph into the one that is gone."""

from __future__ import annotations

from typing import Any

from torchsan import compat
from torchsan.model.events import GraphReused, Line, Memory
from torchsan.observe import nodes
from torchsan.observe.names import variables
from torchsan.observe.objects import is_tensor
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import site_of, user_frames


def explain_reuse(recorder: Recorder, roots: list[Any], frame: Any, first: Line | None) -> list[Any]:
    """`first`: the backward that released the graph, as far as known."""
    for node in nodes.walk(roots):
        if nodes.is_released(node):
            continue
        for parent, _ in node.next_functions:
            if parent is not None and nodes.is_released(parent):
                return _tell(recorder, parent, frame, first)
    released = [node for node in nodes.walk(roots) if nodes.is_released(node)]
    return _tell(recorder, released[0], frame, first) if released else []


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
