"""What an argument is handed over for, told by what the function does with it and by what its documentation says."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from torchsan.check.modelling.values import Write
from torchsan.check.reading.program import FunctionInfo
from torchsan.check.telling.teller import FOR_OUTPUT

# What the documentation of an argument says that is there to be written to.
_TO_BE_FILLED = re.compile(
    r"\bwork(?:ing)?[- ]?(?:space|memory|area)|\bscratch|\bbuffer|\bfilled|\baccumulat|\brunning\b", re.I
)


def is_for_writing(info: FunctionInfo, name: str, writes: list[Write]) -> bool:
    """Whether an argument is memory to be filled, a state to be brought up to date, or is put back as it was."""
    if isinstance(info.node, ast.Lambda):
        return False
    if _TO_BE_FILLED.search(documentation_of(info, name)) or puts_back(info, name):
        return True
    # A name alone may be anybody's: `states` are what an agent has seen, `output` what a network said.
    named = FOR_OUTPUT.search(name) is not None
    return named and any(w.unseen or w.foreign or takes_in(info, name, w) for w in writes)


@lru_cache(maxsize=1024)
def documentation_of(info: FunctionInfo, name: str) -> str:
    """What the documentation of a function, or of the class that it makes objects of, says of one argument."""
    if isinstance(info.node, ast.Lambda):
        return ""
    whole = info.owner.node if info.owner is not None and info.name == "__init__" else None
    shown = [ast.get_docstring(node) or "" for node in (info.node, whole) if node is not None]
    lines = "\n".join(shown).split("\n")
    begins = re.compile(rf"\s*(?::param\s+(?:\w+\s+)?)?`*{re.escape(name)}`*\s*(?:\([^)]*\))?\s*:")
    for index, line in enumerate(lines):
        if begins.match(line):
            depth = len(line) - len(line.lstrip())
            after = [line]
            for below in lines[index + 1 :]:
                if below.strip() and len(below) - len(below.lstrip()) <= depth:
                    break
                after.append(below)
            return "\n".join(after)
    return ""


@lru_cache(maxsize=1024)
def puts_back(info: FunctionInfo, name: str) -> bool:
    """`kept = x[i]; x[:] = 0; x[i] = kept`: its author looks after what the caller reads afterwards."""
    kept: set[str] = set()
    assigned = [n for n in ast.walk(info.node) if isinstance(n, ast.Assign) and len(n.targets) == 1]
    for node in sorted(assigned, key=lambda n: n.lineno):
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name) and _part_of(value, name):
            kept.add(target.id)
        elif _part_of(target, name) and isinstance(value, ast.Name) and value.id in kept:
            return True
    return False


def _part_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == name


def takes_in(info: FunctionInfo, name: str, write: Write) -> bool:
    """Whether what is written comes from other arguments: a state takes it in. `x /= x.norm()` only changes x."""
    place = write.place
    given: list[ast.expr] = []
    if isinstance(place, ast.Assign | ast.AugAssign):
        given = [place.value]
    elif isinstance(place, ast.Call):
        given = [*place.args, *(k.value for k in place.keywords)]
        before = place.func
        while isinstance(before, ast.Attribute | ast.Call):
            # `buf.mul_(beta).add_(grad)`
            given += before.args if isinstance(before, ast.Call) else []
            before = before.func if isinstance(before, ast.Call) else before.value
    spec = info.node.args
    others = {a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)} - {name, "self", "cls"}
    return any(not others.isdisjoint(_comes_from(info, value)) for value in given)


def _comes_from(info: FunctionInfo, value: ast.expr) -> set[str]:
    """Names that a value is made of, also by way of other names of the function."""
    made: dict[str, set[str]] = {}
    for node in ast.walk(info.node):
        if isinstance(node, ast.Assign | ast.For | ast.AsyncFor):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            source = node.value if isinstance(node, ast.Assign) else node.iter
            read = _names(source)
            for target in targets:
                for bound in _names(target):
                    made.setdefault(bound, set()).update(read)
    found: set[str] = set()
    pending = list(_names(value))
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += made.get(name, ())
    return found


def _names(node: ast.AST) -> set[str]:
    """Names whose values matter: not those of which only a shape is asked."""
    about = {
        id(n.value) for n in ast.walk(node) if isinstance(n, ast.Attribute) and n.attr in ("shape", "device", "dtype")
    }
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and id(n) not in about}


def changes_nothing_twice(write: Write) -> bool:
    """`labels[labels == -1] = 0`: done again, it changes nothing more, and says which elements it means."""
    place = write.place
    if isinstance(place, ast.Assign) and isinstance(place.targets[0], ast.Subscript):
        target, which, value = place.targets[0].value, place.targets[0].slice, place.value
    elif isinstance(place, ast.Call) and isinstance(place.func, ast.Attribute) and len(place.args) == 2:
        target, (which, value) = place.func.value, place.args
        if place.func.attr != "masked_fill_":
            return False
    else:
        return False
    name = ast.unparse(target)
    asked = ast.unparse(which.left) if isinstance(which, ast.Compare) else ""
    if isinstance(which, ast.Call):
        # `x[x.isnan()] = 0`, `x[torch.isnan(x)] = 0`
        asked = ast.unparse(which.args[0] if which.args else getattr(which.func, "value", which.func))
    return asked == name and name not in ast.unparse(value)
