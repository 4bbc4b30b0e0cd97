"""Does a backward go through weights as they were before a change of them, and also as they were after it?

So it is where a state is carried over optimizer steps with its graph. No loss has such a gradient: whether the pass is
meant to go on to the old weights or to end at the step, only the author knows.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

from torchsan import compat
from torchsan.fix.digests import digest
from torchsan.fix.trial import Digest
from torchsan.observe import nodes

# The more a leaf has changed since, the less likely is a graph that still holds a use of it.
MOST_VALUES = 64


@dataclass(slots=True)
class _Known:
    """A leaf, and for each value that it had at the end of a pass the last moment of that value."""

    leaf: weakref.ref[torch.Tensor]
    values: list[tuple[int, Digest]] = field(default_factory=list)


class Astride:
    """Told of each backward before and after it is made."""

    def __init__(self) -> None:
        self.found = False
        self._known: dict[int, _Known] = {}

    def before(self, outputs: list[torch.Tensor]) -> None:
        if not self.found and self._known:
            self.found = any(self._spans(leaf, first, last) for leaf, first, last in _uses(outputs))

    def after(self, leaves: list[torch.Tensor]) -> None:
        moment = compat.thread_sequence()
        for leaf in leaves:
            known = self._known.get(id(leaf))
            if known is None or known.leaf() is not leaf:
                known = self._known[id(leaf)] = _Known(weakref.ref(leaf))
            value = digest(leaf)
            if known.values and known.values[-1][1] == value:
                known.values.pop()
            known.values = [*known.values[-MOST_VALUES:], (moment, value)]

    def _spans(self, leaf: torch.Tensor, first: int, last: int) -> bool:
        known = self._known.get(id(leaf))
        if known is None or known.leaf() is not leaf:
            return False
        now = digest(leaf)
        return any(first < moment <= last and value != now for moment, value in known.values)


def _uses(outputs: list[torch.Tensor]) -> list[tuple[torch.Tensor, int, int]]:
    """Each leaf that a backward reaches, with the numbers of the first and of the last op that read it."""
    found: dict[int, tuple[torch.Tensor, int, int]] = {}
    for node in nodes.walk(nodes.roots_of(outputs)):
        number = compat.node_sequence(node)
        for leaf in (_leaf(parent) for parent, _ in node.next_functions):
            if leaf is not None and 0 <= number < nodes.LAST:
                _, first, last = found.get(id(leaf), (leaf, number, number))
                found[id(leaf)] = leaf, min(first, number), max(last, number)
    return list(found.values())


def _leaf(node: Any) -> torch.Tensor | None:
    variable = getattr(node, "variable", None)
    return variable if isinstance(variable, torch.Tensor) else None
