"""What the variables of traced functions were at a line that writes: dynamo knows, and no frame of ours ever will."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from types import CodeType
from typing import Any

import torch
import torch.fx

from torchsan import compat_tracing
from torchsan.model import Place
from torchsan.observe.compiled.instructions import instruction_at
from torchsan.observe.compiled.lines import note_places
from torchsan.observe.sites import USER, kind_of, place_in

NOTHING = object()
SCOPES = "__torchsan_scopes__"
View = tuple[tuple[int, ...], tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor of the graph that lies in memory from outside: in that of an input, or of what the region holds."""

    # The node that it comes from: what has one name is one tensor.
    node: str
    target: int
    # How it lies in that memory, and the shape of the whole for which that holds; None where it is the whole.
    view: View | None
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """A function of the user's that was being traced, where it was, and the variables that it had there."""

    code: CodeType
    lasti: int
    place: Place
    # Nodes of the graph, weak references to modules, or whatever `told` made of them.
    names: dict[str, Any]

    def has_lists(self) -> bool:
        return any(isinstance(value, Items) and value.items for value in self.names.values())

    def told(self, value_of: Callable[[Any], Any]) -> Scope:
        """The same with other values for its variables; those that are NOTHING are left out."""
        found = {name: value_of(known) for name, known in self.names.items()}
        kept = {name: value for name, value in found.items() if value is not NOTHING}
        return Scope(self.code, self.lasti, self.place, kept)


@dataclass(frozen=True, slots=True)
class Items:
    """A list of the program's, by its identity while it was traced, and what was in it."""

    identity: int
    items: tuple[Any, ...]


# Of a line that writes: the user's functions that led to it, innermost first.
Scopes = tuple[Scope, ...]


def may_write(target: Any, args: Any, kwargs: Any) -> bool:
    """Does a call that dynamo puts into its graph look like one that writes?"""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if not isinstance(name, str):
        return False
    in_place = name.endswith("_") and not name.endswith("__")
    operator = name == "setitem" or (getattr(target, "__module__", "") == "_operator" and name.startswith("i"))
    return in_place or operator or "out" in kwargs or any(value is True for value in (*args, *kwargs.values()))


def note_node(output: Any, node: torch.fx.Node, *, writes: bool) -> None:
    """Keep what dynamo knows where it has just made this node: its place, and of a line that writes the variables."""
    spots = _spots(output)
    note_places(node, tuple(place for _, _, place, _ in spots))
    if writes and spots:
        scopes = [Scope(code, at, place, _told(names)) for code, at, place, names in spots]
        # Not in a place of ours: a graph that is given up, to be traced anew, takes them with it.
        vars(output).setdefault(SCOPES, {})[node] = tuple(scopes)


def noted_scopes(output: Any) -> dict[torch.fx.Node, Scopes]:
    found: dict[torch.fx.Node, Scopes] = vars(output).pop(SCOPES, {})
    return found


def _told(names: dict[str, Any]) -> dict[str, Any]:
    found = {name: _held(compat_tracing.traced_value(variable)) for name, variable in names.items()}
    return {name: value for name, value in found.items() if value is not None}


def _spots(output: Any) -> list[tuple[CodeType, int, Place, dict[str, Any]]]:
    """The user's functions in which dynamo is at this moment; none where the lines of one of them are not known."""
    found = []
    for code, instruction, names in compat_tracing.traced_functions(output):
        if kind_of(code) == USER:
            spot = _spot(
                code, code.co_filename, getattr(instruction, "offset", None), getattr(instruction, "positions", None)
            )
            if spot is None:
                return []
            found.append((*spot, names))
    return found


def _held(value: Any) -> Any:
    """Modules belong to the program: they must not live longer for us."""
    if isinstance(value, tuple):
        return Items(value[0], value[1])
    return weakref.ref(value) if isinstance(value, torch.nn.Module) else value


@lru_cache(maxsize=4096)
def _spot(code: CodeType, path: str, offset: Any, positions: Any) -> tuple[CodeType, int, Place] | None:
    """The instruction in the code of the user's source. Code is equal to code that another file has as well."""
    if not isinstance(offset, int):
        return None
    place = place_in(code, offset)
    if place.line != getattr(positions, "lineno", None):
        return None
    if not compat_tracing.is_resumed(code):
        return code, offset, place
    # The rest of a function behind a graph break: a function of dynamo's own, on the lines of the user's.
    found = instruction_at(place)
    return (*found, replace(place, function=found[0].co_qualname)) if found is not None else None
