"""Writes to memory that stands for several elements, which torch notices only when backward comes to them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from torchsan import compat
from torchsan.model.events import Line, Memory, RefusedWrite, Write
from torchsan.observe import nodes
from torchsan.observe.refusals import origin_line, whole_statement, written_name
from torchsan.observe.sites import site_of

if TYPE_CHECKING:
    from torchsan.observe.recorder import Recorder

OVERLAP = re.compile(r"of the written-to tensor refers to a single memory location")
# The node of a write to a view: backward makes the same write on gradients that lie in memory as the tensors did.
WRITE = "CopySlices"
# The node of a view as it is after such a write.
VIEW = "AsStridedBackward"


def explain_overlap(recorder: Recorder, roots: list[Any], text: str, frame: FrameType) -> list[Any]:
    """Tell the writes by their own lines; nothing where it is not clear which of several it was."""
    site = site_of(frame)
    needed = Line(site.place, site.library_place)
    found: list[Any] = []
    for line in _lines(_overlapping(roots)):
        name = written_name(line.place)
        write = Write("", "op", Line(whole_statement(line.place), line.library))
        origin = origin_line(line.place, name)
        found += recorder.emit(RefusedWrite("overlap", Memory(name), write, origin, text=text, needed=needed))
    return found


def _overlapping(roots: list[Any]) -> list[Any]:
    """Nodes of writes whose tensor is known to overlap; else the only one that writes at all."""
    known: dict[Any, None] = {}
    every: dict[Any, None] = {}
    for node in nodes.walk(roots):
        folded = VIEW in node.name() and _is_folded(node)
        for parent, _ in node.next_functions:
            if parent is not None and WRITE in parent.name():
                every[parent] = None
                if folded:
                    known[parent] = None
    every.update({root: None for root in roots if WRITE in root.name()})
    return list(known) or (list(every) if len(_lines(list(every))) == 1 else [])


def _is_folded(node: Any) -> bool:
    """Does some dimension of the view repeat the memory of another element?"""
    sizes, strides = (getattr(node, name, None) for name in ("_saved_size", "_saved_stride"))
    if not isinstance(sizes, Sequence) or not isinstance(strides, Sequence):
        return False
    reach = 1
    for stride, size in sorted(zip(strides, sizes, strict=False)):
        if size > 1 and stride < reach:
            return True
        reach += stride * (size - 1)
    return False


def _lines(found: list[Any]) -> list[Line]:
    """The lines of these nodes, each once, the first to run first; nothing where one of them is not known."""
    ordered = sorted(found, key=compat.node_sequence)
    lines = [nodes.line_of_node(node) for node in ordered]
    known = [line for line in lines if line is not None]
    return list(dict.fromkeys(known)) if len(known) == len(lines) else []
