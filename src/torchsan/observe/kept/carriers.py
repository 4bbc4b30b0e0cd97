"""Which tensors of a run carry a graph, and from which steps its nodes are."""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torchsan import compat
from torchsan.observe import nodes
from torchsan.observe.kept.saved import LEAVES
from torchsan.observe.objects import class_members, is_honest
from torchsan.observe.sites import Site

# Nodes that one look may walk through, and those of one graph.
MAX_NODES, MAX_GRAPH = 60_000, 20_000
LineKey = tuple[int, int] | None
Origin = tuple[LineKey, str]
_NODE = ("next_functions", "_sequence_nr", "_register_hook_dict")
_node_kinds: dict[int, tuple[type, bool]] = {}


def line_of(site: Site | None) -> LineKey:
    """One line has several sites: for each of its ops, and for the ways that lead to them through libraries."""
    return (id(site.code), site.place.line) if site is not None else None


@dataclass(slots=True, eq=False)
class Carrier:
    """A tensor with a graph, or a node of a graph, that Python knows."""

    value: Any
    node: Any
    sequence: int
    tick: int
    site: Site | None

    @property
    def line(self) -> LineKey:
        return line_of(self.site)

    @property
    def origin(self) -> Origin:
        """The line and the op: what one line makes in several ops has different fates."""
        return self.line, type(self.node).__name__


@dataclass(slots=True)
class Carriers:
    """All of them, and the leaves to which those belong that are gradients."""

    found: list[Carrier] = field(default_factory=list)
    leaves: dict[int, Any] = field(default_factory=dict)


def find(ticks: Sequence[int]) -> Carriers:
    """Every carrier that is alive. Nothing of the program's is called."""
    carriers = Carriers()
    met: set[int] = set()
    with torch._C.DisableTorchFunctionSubclass():
        for value in _of_interest(gc.get_objects()):
            for one, leaf in _carrying(value):
                if id(one) in met:
                    continue
                met.add(id(one))
                node = compat.grad_fn_of(one) if isinstance(one, torch.Tensor) else one
                sequence = compat.node_sequence(node)
                if leaf is not None:
                    carriers.leaves[id(one)] = leaf
                if 0 <= sequence < LEAVES:
                    tick = bisect_right(ticks, sequence)
                    carriers.found.append(Carrier(one, node, sequence, tick, nodes.site_of_node(node)))
    return carriers


def _of_interest(objects: list[Any]) -> list[Any]:
    """By class alone, and each class asked once: there are hundreds of thousands of objects."""
    kinds = {id(kind): kind for kind in map(type, objects)}
    chosen = {number for number, kind in kinds.items() if _is_tensor_kind(kind) or _is_node(kind)}
    return [one for one in objects if id(type(one)) in chosen]


def _dispatch(kind: Any) -> Any:
    return kind.__torch_dispatch__


_PLAIN_DISPATCH = _dispatch(torch.Tensor)


def _is_tensor_kind(kind: type) -> bool:
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return True
    # What dispatches by itself (a compiler's tensors) would be asked by every question.
    return issubclass(kind, torch.Tensor) and is_honest(kind) and _dispatch(kind) is _PLAIN_DISPATCH


def _carrying(value: Any) -> Iterator[tuple[Any, Any]]:
    if not issubclass(type(value), torch.Tensor) or not compat.is_leaf(value):
        yield value, None
    elif value.requires_grad and value.grad is not None and value.grad.grad_fn is not None:
        yield value.grad, value


def _is_node(kind: type) -> bool:
    """Is this a class of torch's own nodes? Those of custom functions live in every graph and say nothing."""
    known = _node_kinds.get(id(kind))
    if known is None:
        members = class_members(kind)
        # The class is kept, so that its address stays its own.
        known = _node_kinds[id(kind)] = (kind, all(name in members for name in _NODE))
    return known[1]


@dataclass(slots=True)
class Reach:
    """How far a graph goes back."""

    ticks: set[int] = field(default_factory=set)
    sequences: set[int] = field(default_factory=set)
    # The first line met whose nodes become more.
    site: Site | None = None


class Walker:
    """Walks graphs, within a number of nodes that is given to one look."""

    def __init__(self, ticks: Sequence[int], wanted: set[int]) -> None:
        self.ticks = ticks
        self.wanted = wanted
        self.left = MAX_NODES

    def reach(self, node: Any) -> Reach:
        found = Reach()
        for count, one in enumerate(nodes.walk([node])):
            self.left -= 1
            if count > MAX_GRAPH or self.left < 0:
                break
            sequence = compat.node_sequence(one)
            # Leaves are numbered beyond all others.
            if not 0 <= sequence < LEAVES:
                continue
            found.sequences.add(sequence)
            site = nodes.site_of_node(one)
            if site is not None and id(site) in self.wanted:
                found.site = found.site or site
                found.ticks.add(bisect_right(self.ticks, sequence))
        return found

    def comes_back(self, node: Any, before: set[int], closed: set[Origin]) -> bool:
        """Does a graph lead to one of these nodes without going through others? True where that is too far to see."""
        met, todo = {node}, [node]
        while todo:
            self.left -= 1
            if len(met) > MAX_GRAPH or self.left < 0:
                return True
            for parent, _ in todo.pop().next_functions:
                if parent is None or parent in met:
                    continue
                met.add(parent)
                if compat.node_sequence(parent) in before:
                    return True
                if (line_of(nodes.site_of_node(parent)), type(parent).__name__) not in closed:
                    todo.append(parent)
        return False
