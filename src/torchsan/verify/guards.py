"""Which line made an export refuse a size: torch's own account of the sizes that it fixed."""

from __future__ import annotations

import re
from typing import Any

from torchsan import compat_capture
from torchsan.model import Place
from torchsan.model.capture_events import Departure, ReadOut
from torchsan.model.source import shown_path, source_line
from torchsan.verify.frames import is_users, text_of, use_at
from torchsan.verify.methods import Captured
from torchsan.verify.sizes import Axis, size_at
from torchsan.verify.subject import Subject, one_line


def violated_guard(subject: Subject, captured: Captured, leaves: list[Any]) -> ReadOut | Departure | None:
    """The first relation of sizes that held for the example and does not hold for these inputs."""
    environment = compat_capture.shape_environment(captured.artifact)
    if environment is None:
        return None
    symbols = {s: axis_of(subject, *where) for s, where in compat_capture.size_symbols(environment).items()}
    example = captured.example or subject.leaves
    before, after = ({s: _size(given, axis) for s, axis in symbols.items()} for given in (example, leaves))
    for guard in compat_capture.shape_guards(environment):
        free = list(getattr(guard.expression, "free_symbols", ()))
        place = captured.asked.get(guard.key) or (_place(guard) if is_users(guard.path) else None)
        if place is None or not free or any(after.get(s) is None for s in free):
            continue
        if bool(guard.expression.xreplace({s: after[s] for s in free})):
            continue
        if getattr(guard.expression, "rel_op", "") == "!=" and str(guard.expression.rhs) in ("0", "1"):
            # `n // 4` that comes to 1: exporters take a 1 for something else than any other size.
            return Departure(place, text_of(place), only_size_one=True, is_operation=True)
        old, new = (", ".join(str(sizes[s]) for s in free) for sizes in (before, after))
        return ReadOut("size", "shape", use_at(place) or "number", place, text_of(place), old, new)
    return None


# What an exported program says when it refuses; where it takes one size alone.
_REFUSES, _ONE_SIZE = re.compile(r"Guard failed: (.+)$"), re.compile(r"[\w.\[\]()' ]+ == \d+$")


def limit_of(error: BaseException | None) -> str:
    """The relation that a refused size breaks, other than that it is not the example's."""
    match = _REFUSES.match(one_line(error)) if error is not None else None
    return match[1] if match and not _ONE_SIZE.match(match[1]) else ""


_ABOUT_ONE = re.compile(r"Guard failed: .* != 1$")


def is_about_one(error: BaseException | None) -> bool:
    """Whether an exported program refuses a size from which an inner one comes to 1."""
    return _ABOUT_ONE.match(one_line(error)) is not None if error is not None else False


def axis_of(subject: Subject, name: str, way: str, dim: int) -> Axis | None:
    """The dimension of an input that torch names by argument; nested inputs by their indices."""
    wanted = name + way
    for index in subject.tensors:
        known = subject.names[index].replace("args[", f"{name}[") if way else subject.names[index]
        if known == wanted and dim < subject.leaves[index].dim():
            return index, dim
    return None


def _size(leaves: list[Any], axis: Axis | None) -> int | None:
    return size_at(leaves[axis[0]], axis[1]) if axis is not None else None


def _place(guard: compat_capture.ShapeGuard) -> Place:
    path = shown_path(guard.path)
    if guard.end_column > guard.column:
        return Place(path, guard.line, guard.column, guard.line, guard.end_column, guard.function)
    text = source_line(path, guard.line)
    return Place(path, guard.line, len(text) - len(text.lstrip()) + 1, guard.line, len(text) + 1, guard.function)
