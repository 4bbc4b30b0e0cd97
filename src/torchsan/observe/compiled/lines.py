"""Lines inside a region, from the stack that dynamo keeps with every node of its graph."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.fx

from torchsan.model import Place
from torchsan.model.source import shown_path, source_line
from torchsan.observe import expressions as syntax
from torchsan.observe.sites import LIBRARY, OURS, TORCH, USER, Mark, Site, is_stdlib, kind_of_path

_FRAME = re.compile(r'^  File "(?P<path>.+)", line (?P<line>\d+), in (?P<name>.+)$')
Places = tuple[Place, ...]
_CARETS = re.compile(r"^    (?P<lead> *)(?P<marks>[~^]+) *$")
_OPERATORS = {"setitem": "__setitem__", **{f"i{n}": f"__i{n}__" for n in ("add", "sub", "mul", "truediv", "pow")}}


class LineSite(Site):
    """A line that no frame stands at: it was traced, and runs in compiled code."""

    def __init__(self, place: Place, library: Place | None, above: tuple[Place, ...] = ()) -> None:
        self.mark = Mark(self, f'  File "{place.path}", line {place.line}, in {place.function}\n')
        self.__dict__["place"] = place
        self.__dict__["library_place"] = library
        # The user's calls inside the region that led to this line, innermost first.
        self.above = above
        self._inside: LineSite | None = None
        self.code = (lambda: None).__code__
        self.lasti = 0
        self.library = (self.code, 0) if library is not None else None
        self.hooked = False
        self.module = ""
        self.twins = {}

    def _again(self) -> Site:
        return LineSite(self.place, self.library_place, self.above)

    def inside_torch(self) -> LineSite:
        """The same line where what happens is done by a layer or a function of torch's that it calls."""
        if self._inside is None:
            self._inside = LineSite(self.place, self.library_place, self.above)
            self._inside.library = (self.code, 0)
        return self._inside


# The stack that dynamo keeps as text does not say where the call in a line ends. What it knew is kept here, for its
# nodes, and for the text where that stands for one place only.
_known: WeakKeyDictionary[torch.fx.Node, Places] = WeakKeyDictionary()
_by_text: dict[str, Places] = {}
MAX_TEXTS = 20_000


def note_places(node: torch.fx.Node, places: Places) -> None:
    """The user's places that have led to this node, innermost first."""
    text = node.meta.get("stack_trace")
    if not isinstance(text, str) or not places:
        return
    if len(_by_text) > MAX_TEXTS:
        _by_text.clear()
    _known[node] = places
    _by_text[text] = places if _by_text.get(text, places) == places else ()


def node_site(node: torch.fx.Node) -> LineSite | None:
    """The line of a node of dynamo's graph, or of one that was made from it."""
    text = node.meta.get("stack_trace")
    if not isinstance(text, str):
        return None
    return _site(text, _known.get(node, _by_text.get(text, ())))


def write_site(node: torch.fx.Node) -> LineSite | None:
    """The line of a node that writes; dynamo leaves out the frames of torch's own layers and functions."""
    site = node_site(node)
    return site.inside_torch() if site is not None and site.library is None and _is_torchs_write(node) else site


def _is_torchs_write(node: torch.fx.Node) -> bool:
    """Is it not the user's line itself that writes, but a layer, or a function with `inplace=True`?"""
    stack = node.meta.get("source_fn_stack")
    if stack and isinstance(stack[-1][1], type):
        return True
    op = node_op(node)
    return node.op == "call_function" and not op.endswith("_") and "out" not in node.kwargs


def node_op(node: torch.fx.Node) -> str:
    """The name that a write in eager would have: `add_`, `__iadd__`, `__setitem__`."""
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    return _OPERATORS.get(name, name)


@lru_cache(maxsize=4096)
def _site(text: str, exact: Places) -> LineSite | None:
    """The user's line of a stack, and the library's below it; None where neither is in it."""
    found = _chosen(_places(text))
    told = [found.place, *found.above] if found is not None else []
    if found is None or [(p.path, p.line) for p in told] != [(p.path, p.line) for p in exact]:
        return found
    return LineSite(exact[0], found.library_place, exact[1:])


def site_of_summaries(frames: Iterable[Any]) -> LineSite | None:
    """The same from `traceback.FrameSummary`s."""
    found = []
    for frame in frames:
        columns = (frame.colno, frame.end_colno) if frame.colno is not None else None
        one_line = getattr(frame, "end_lineno", frame.lineno) in (None, frame.lineno)
        found.append(_place(frame.filename, frame.lineno, frame.name, columns if one_line else None))
    return _chosen(found)


def _chosen(places: list[tuple[Place, int]]) -> LineSite | None:
    user = next((i for i in range(len(places) - 1, -1, -1) if places[i][1] == USER), None)
    below = places[user + 1 :] if user is not None else places
    libraries = [place for place, kind in below if kind == LIBRARY and not is_stdlib(place.path)]
    inner = [place for place, kind in below if kind in (LIBRARY, TORCH)]
    library = libraries[-1] if libraries else (inner[-1] if inner else None)
    if user is not None:
        above = tuple(place for place, kind in reversed(places[:user]) if kind == USER)
        return LineSite(places[user][0], library, above)
    return LineSite(libraries[-1], None) if libraries else None


def _places(text: str) -> list[tuple[Place, int]]:
    found: list[tuple[Place, int]] = []
    lines = text.splitlines()
    for index, line in enumerate(lines):
        match = _FRAME.match(line)
        if match is None:
            continue
        path, number = match["path"], int(match["line"])
        columns = None
        marks = _CARETS.match(lines[index + 2]) if index + 2 < len(lines) else None
        if marks is not None:
            source = source_line(shown_path(path), number)
            indent = len(source) - len(source.lstrip())
            start = indent + len(marks["lead"])
            columns = (start, start + len(marks["marks"]))
        found.append(_place(path, number, match["name"], columns))
    return found


def _place(path: str, line: int, name: str, columns: tuple[int, int] | None) -> tuple[Place, int]:
    kind = kind_of_path(path)
    shown = shown_path(path)
    if kind == OURS:
        kind = TORCH
    source = source_line(shown, line)
    if columns is None:
        indent = len(source) - len(source.lstrip())
        columns = (indent, len(source.rstrip()))
        return _whole(Place(shown, line, columns[0] + 1, line, columns[1] + 1, name), kind), kind
    return Place(shown, line, columns[0] + 1, line, columns[1] + 1, name), kind


def _whole(place: Place, kind: int) -> Place:
    """The statement that begins with this line; dynamo marks no columns when the code fills its line."""
    file = syntax.file_of(place.path) if kind == USER else None
    if file is None or file.at(place) is not None:
        return place
    starts = [
        key
        for key, found in file.by_range.items()
        if key[0] == place.line and key[1] == place.column and not any(hasattr(node, "body") for node in found)
    ]
    if not starts:
        return place
    key = max(starts, key=lambda key: (key[2], key[3]))
    return Place(place.path, key[0], key[1], key[2], key[3], place.function)
